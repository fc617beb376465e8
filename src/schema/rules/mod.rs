//! Rules in CEL: conditions on the data of a type.
//!
//! Owns parsing and evaluation of expressions; [`check`] finds faults at registration, [`meter`]
//! bounds the cost of an evaluation, [`message`] converts protobuf messages for the interpreter.
//! The dialect is CEL's standard library, without optional values and without user-defined macros.
//! Variables are `data`, and `resource` with `name`, `partition`, `namespace` and `metadata`.

mod check;
mod message;
mod meter;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelMap, CelMapKey, CelString};
use cel::common::value::Val;
use cel::{Context, Env, Value};
use prost_reflect::{DynamicMessage, MessageDescriptor};

use super::{SchemaError, Violation, shown};
use headwater_types::limits::{
    TYPE_RULE_BYTES_MAX, TYPE_RULE_DEPTH_MAX, TYPE_RULE_TEXT_BYTES_MAX, TYPE_RULE_TREE_DEPTH_MAX, TYPE_RULES_MAX,
};
use headwater_types::resource::{self, Resource};

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib().with_optional_support(false);
    meter::declare(&mut env);
    Arc::new(env)
});

/// Size of a stack for parsing or evaluating the deepest allowed expression, bytes, with a large
/// margin.
const LARGE_STACK_BYTES: usize = 16 << 20;
/// Largest depth of a syntax tree that is evaluated on the stack of the calling thread, nodes.
const SHALLOW_MAX: usize = 10;

/// The rules of a type, compiled.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Size of the stack that the evaluation needs, bytes; `None` if that of the calling thread
    /// suffices.
    stack_bytes: Option<usize>,
    patterns: Arc<meter::Patterns>,
}

struct Rule {
    expression: String,
    text: String,
    code: IdedExpr,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|rule| &rule.expression)).finish()
    }
}

impl Rules {
    pub(super) fn compile(given: &[resource::Rule], message: Option<&MessageDescriptor>) -> Result<Self, SchemaError> {
        if given.is_empty() {
            return Self::compile_here(given, message);
        }
        // The parser recurses once for each operator of a chain, and the number of operators is
        // known only after parsing.
        on_stack_of(LARGE_STACK_BYTES, || Self::compile_here(given, message))
            .unwrap_or_else(|why| Err(SchemaError::Unavailable(why)))
    }

    fn compile_here(given: &[resource::Rule], message: Option<&MessageDescriptor>) -> Result<Self, SchemaError> {
        if given.len() > TYPE_RULES_MAX {
            let what = "the number of rules".to_owned();
            return Err(SchemaError::TooLarge { what, size: given.len(), max: TYPE_RULES_MAX });
        }
        let mut patterns = HashMap::new();
        let mut rules = Vec::with_capacity(given.len());
        for (at, resource::Rule { expression, message: text }) in given.iter().enumerate() {
            let number = at + 1;
            for (what, given, max) in
                [("expression", expression, TYPE_RULE_BYTES_MAX), ("text", text, TYPE_RULE_TEXT_BYTES_MAX)]
            {
                if given.len() > max {
                    let what = format!("the {what} of rule {number}, in bytes,");
                    return Err(SchemaError::TooLarge { what, size: given.len(), max });
                }
            }
            let message = message.ok_or(SchemaError::NoMessage("rules"))?;
            let code = compile(expression, message, &mut patterns).map_err(|why| SchemaError::Rule {
                number,
                expression: shown(expression),
                why,
            })?;
            rules.push(Rule { expression: shown(expression), text: text.clone(), code });
        }
        let is_shallow = rules.iter().all(|rule: &Rule| check::is_shallow(&rule.code, SHALLOW_MAX));
        let stack_bytes = (!is_shallow).then_some(LARGE_STACK_BYTES);
        Ok(Self { rules, stack_bytes, patterns: Arc::new(patterns) })
    }

    /// Evaluates the rules for a message, with one budget for all of them. An error other than
    /// [`Violation::Broken`] ends the evaluation at once.
    pub(super) fn check(&self, message: DynamicMessage, resource: &Resource) -> Result<(), Violation> {
        if self.rules.is_empty() {
            return Ok(());
        }
        match self.stack_bytes {
            None => self.check_here(message, resource),
            Some(bytes) => on_stack_of(bytes, || self.check_here(message, resource))
                .unwrap_or_else(|why| Err(Violation::Unavailable(why))),
        }
    }

    fn check_here(&self, message: DynamicMessage, resource: &Resource) -> Result<(), Violation> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.add_variable_as_val("data", message::value(message));
        context.add_variable_as_val("resource", facts(resource));

        let mut broken = Vec::new();
        let metered = meter::Metered::begin(&self.patterns);
        for rule in &self.rules {
            let result = guarded(|| Value::resolve_val(&rule.code, &context));
            if metered.is_spent() {
                return Err(Violation::TooCostly { expression: rule.expression.clone() });
            }
            let holds = match &result {
                Err(why) => Err(why.clone()),
                Ok(Ok(value)) => value
                    .downcast_ref::<CelBool>()
                    .map(|holds| *holds.inner())
                    .ok_or_else(|| format!("it is of type {}, not bool", value.get_type().name())),
                Ok(Err(error)) => Err(why_undecided(error)),
            };
            match holds {
                Ok(true) => {}
                Ok(false) if rule.text.is_empty() => broken.push(format!("this must hold: {}", rule.expression)),
                Ok(false) => broken.push(rule.text.clone()),
                Err(why) => return Err(Violation::RuleFailed { expression: rule.expression.clone(), why }),
            }
        }
        if broken.is_empty() { Ok(()) } else { Err(Violation::Broken(broken)) }
    }
}

/// Runs `work`, which may recurse deeply, on a thread with a stack of `bytes`. The error is the
/// reason why the thread could not be started.
fn on_stack_of<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rules".to_owned()).stack_size(bytes);
        let running = thread.spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        Ok(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Runs `work`, which calls the crate `cel`. A panic of the crate, on an arithmetic overflow for
/// example, becomes an error: no expression may end the node's thread. Callers do not use values
/// that a panic leaves half done.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|_| "the interpreter gave up on it".to_owned())
}

/// The value of the variable `resource`. The module [`check`] lists its fields, too.
fn facts(resource: &Resource) -> Box<dyn Val + '_> {
    let metadata = resource.metadata.iter().map(|(key, value)| (key.as_str().into(), text(value)));
    let metadata: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = metadata.collect();
    let facts: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = HashMap::from([
        ("name".into(), text(&resource.id.name)),
        ("partition".into(), text(&resource.id.tenancy.partition)),
        ("namespace".into(), text(&resource.id.tenancy.namespace)),
        ("metadata".into(), Box::new(CelMap::from(metadata)) as Box<dyn Val + '_>),
    ]);
    Box::new(CelMap::from(facts))
}

fn text<'v>(text: &'v str) -> Box<dyn Val + 'v> {
    Box::new(CelString::from(text))
}

fn compile(expression: &str, message: &MessageDescriptor, patterns: &mut meter::Patterns) -> Result<IdedExpr, String> {
    let depth = nesting(expression);
    if depth > TYPE_RULE_DEPTH_MAX {
        return Err(format!("it is nested {depth} deep, more than the {TYPE_RULE_DEPTH_MAX} that are allowed"));
    }
    let parsed = guarded(|| ENV.parser().max_recursion_depth(RECURSION_MAX).parse(expression))?;
    let mut code = parsed.map_err(|errors| {
        let first = errors.errors.first();
        first.map_or_else(String::new, |error| format!("line {}, column {}: {}", error.pos.0, error.pos.1, error.msg))
    })?;
    if !check::is_shallow(&code, TYPE_RULE_TREE_DEPTH_MAX) {
        return Err(format!("it chains more than {TYPE_RULE_TREE_DEPTH_MAX} operators; split it into several rules"));
    }
    check::check(&mut code, message)?;
    meter::instrument(&mut code, patterns)?;
    Ok(code)
}

/// Depth limit of the parser's recursion, calls: one level of an expression takes several calls,
/// one for each level of the grammar.
const RECURSION_MAX: u16 = 16 * TYPE_RULE_DEPTH_MAX as u16;

/// Estimated nesting depth: the most open brackets at once, and one level for every four of the
/// operators `?`, `!` and `-`, which nest without brackets. Characters in a quoted text count, too.
fn nesting(expression: &str) -> usize {
    let mut open = 0_usize;
    let mut deepest = 0;
    let mut signs = 0_usize;
    for c in expression.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '?' | '!' | '-' => signs += 1,
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest + signs / 4
}

/// The text of the interpreter's error, cut: it may contain all of the data.
fn why_undecided(error: &cel::ExecutionError) -> String {
    shown(&error.to_string())
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;

    #[test]
    fn a_missing_thread_is_no_fault_of_the_data() {
        let descriptor = DescriptorPool::global().get_message_by_name("google.protobuf.Duration").unwrap();
        let rule = resource::Rule { expression: "true".to_owned(), message: String::new() };
        let mut rules = Rules::compile(&[rule], Some(&descriptor)).unwrap();
        // The last stack is larger than any address space.
        for (stack_bytes, is_available) in [(None, true), (Some(LARGE_STACK_BYTES), true), (Some(1 << 60), false)] {
            rules.stack_bytes = stack_bytes;
            match rules.check(DynamicMessage::new(descriptor.clone()), &Resource::default()) {
                Ok(()) => assert!(is_available, "{stack_bytes:?}"),
                Err(Violation::Unavailable(_)) => assert!(!is_available, "{stack_bytes:?}"),
                other => panic!("{stack_bytes:?}: {other:?}"),
            }
        }
    }
}
