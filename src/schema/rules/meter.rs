//! Bounds the cost of an evaluation. The interpreter has no budget of its own, so the compiled
//! expression is rewritten: every value that takes time or memory in proportion to data is passed
//! through functions that charge for it.
//!
//! * `@loop(range, nodes)` around the range of a comprehension: charges the weight of the range,
//!   and for each element `nodes`, the count of nodes in the loop's body.
//! * `@cost(value)` around operands and elements: charges the weight of the value for comparing,
//!   joining and copying it.
//! * `matches` is our own function: patterns are literals, compiled once at registration, and their
//!   size is limited. It charges for each byte of the text.
//!
//! `@` cannot be written in CEL, so rules cannot call these functions. The budget belongs to the
//! thread while a [`Metered`] lives: an evaluation runs on one thread from beginning to end. Once
//! the budget is spent, every charge fails, and so every loop ends.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelBytes, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::message::MessageVal;
use headwater_types::limits::{TYPE_PATTERN_BYTES_MAX, TYPE_RULE_COST_MAX};

/// The compiled regular expressions of a type's rules, by their text.
pub(super) type Patterns = HashMap<String, Regex>;

const COST: &str = "@cost";
const LOOP: &str = "@loop";
/// Name of the function that replaces `has(operand.field)`. The interpreter's own would be true for
/// every field of a message, because reading an unset field returns its default.
pub(super) const HAS: &str = "@has";
const MATCHES: &str = "matches";

/// Bytes of a text that cost as much as one node of a syntax tree.
const BYTES_PER_UNIT: usize = 16;

/// Cost of `matches` for each byte of the text, units: the worst allowed patterns keep hundreds of
/// states at each byte.
const MATCH_UNITS_PER_BYTE: u64 = 4;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static PATTERNS: RefCell<Option<Arc<Patterns>>> = const { RefCell::new(None) };
}

/// The budget of this thread: full at [`begin`](Self::begin), spent when the value is dropped.
pub(super) struct Metered(());

impl Metered {
    pub(super) fn begin(patterns: &Arc<Patterns>) -> Self {
        LEFT.set(TYPE_RULE_COST_MAX);
        PATTERNS.replace(Some(Arc::clone(patterns)));
        Self(())
    }

    pub(super) fn is_spent(&self) -> bool {
        LEFT.get() == 0
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        LEFT.set(0);
        PATTERNS.replace(None);
    }
}

fn charge(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().saturating_sub(units);
    LEFT.set(left);
    if left == 0 { Err(ExecutionError::InternalError("the budget is spent".to_owned())) } else { Ok(()) }
}

/// The cost of reading a whole value, units: one for the value and for each value and map key in
/// it, and one more for every [`BYTES_PER_UNIT`] bytes of a text or byte string.
pub(super) fn weight(value: &dyn Val) -> u64 {
    let of_bytes = |bytes: usize| 1 + (bytes / BYTES_PER_UNIT) as u64;
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        of_bytes(text.inner().len())
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        of_bytes(bytes.inner().len())
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        list.inner().iter().fold(1, |sum, item| sum.saturating_add(weight(item.as_ref())))
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let entries = map.inner().iter();
        entries
            .fold(1, |sum, (key, item)| sum.saturating_add(weight(key.inner())).saturating_add(weight(item.as_ref())))
    } else if let Some(message) = value.downcast_ref::<MessageVal>() {
        message.weight
    } else {
        1
    }
}

pub(super) fn declare(env: &mut Env) {
    let declared = [
        env.add_overload(COST, "headwater_cost", vec![DYN_TYPE], cost),
        env.add_overload(LOOP, "headwater_loop", vec![DYN_TYPE, INT_TYPE], enter),
        env.add_overload(HAS, "headwater_has", vec![DYN_TYPE, STRING_TYPE], has),
        env.add_overload(MATCHES, "headwater_matches", vec![STRING_TYPE, STRING_TYPE], matches),
        env.add_member_overload(MATCHES, "headwater_string_matches", STRING_TYPE, vec![STRING_TYPE], matches),
    ];
    for declared in declared {
        declared.expect("the standard library has no function of these names");
    }
}

fn cost<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    // Charged before the value is weighed, which takes time, too: once the budget is spent, values
    // are not read any more.
    charge(1)?;
    charge(weight(args[0].as_ref()))?;
    Ok(args.swap_remove(0))
}

fn enter<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    charge(1)?;
    let range = args[0].as_ref();
    let elements = match (range.downcast_ref::<CelList<'_>>(), range.downcast_ref::<CelMap<'_>>()) {
        (Some(list), _) => list.inner().len(),
        (_, Some(map)) => map.inner().len(),
        (None, None) => 0,
    };
    let body = args[1].downcast_ref::<CelInt>().map_or(1, |body| body.inner().unsigned_abs());
    charge(weight(range).saturating_add((elements as u64).saturating_mul(body)))?;
    Ok(args.swap_remove(0))
}

fn has<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let field = text(&args, 1)?;
    let found = match args[0].downcast_ref::<MessageVal>() {
        Some(message) => message.has(field).ok_or_else(|| ExecutionError::no_such_key(field))?,
        None => match args[0].as_indexer().map(|indexer| indexer.get(args[1].as_ref())) {
            Some(Ok(_)) => true,
            Some(Err(ExecutionError::NoSuchKey(_))) => false,
            Some(Err(error)) => return Err(error),
            None => return Err(ExecutionError::function_error("has", "not something with fields")),
        },
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (subject, pattern) = (text(&args, 0)?, text(&args, 1)?);
    charge((subject.len() as u64).saturating_mul(MATCH_UNITS_PER_BYTE))?;
    let found = PATTERNS.with_borrow(|patterns| {
        let pattern = patterns.as_ref().and_then(|patterns| patterns.get(pattern));
        pattern.map(|pattern| pattern.is_match(subject))
    });
    let found = found.ok_or_else(|| ExecutionError::function_error(MATCHES, "the pattern is not a literal"))?;
    Ok(CowVal::owned(CelBool::from(found)))
}

fn text<'a>(args: &'a [CowVal<'_, '_>], at: usize) -> Result<&'a str, ExecutionError> {
    let text = args.get(at).and_then(|arg| arg.downcast_ref::<CelString<'_>>());
    text.map(CelString::inner).ok_or_else(ExecutionError::missing_argument_or_target)
}

/// Inserts the charging functions into an expression. Compiles its regular expressions and adds
/// them to `patterns`.
pub(super) fn instrument(expr: &mut IdedExpr, patterns: &mut Patterns) -> Result<(), String> {
    walk(expr, patterns).map(|_| ())
}

/// Puts the charging functions into a node and all nodes below it. Returns the number of nodes to
/// charge for one evaluation of the node. Added `@cost` nodes count. Bodies of loops do not count,
/// because `@loop` charges for them.
fn walk(node: &mut IdedExpr, patterns: &mut Patterns) -> Result<u64, String> {
    let mut nodes = 1;
    match &mut node.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => {
            if call.func_name == MATCHES {
                collect(call.args.last(), patterns)?;
            }
            let is_control = matches!(
                call.func_name.as_str(),
                operators::CONDITIONAL
                    | operators::LOGICAL_AND
                    | operators::LOGICAL_OR
                    | operators::LOGICAL_NOT
                    | operators::NOT_STRICTLY_FALSE
                    | operators::INDEX
                    | HAS
            );
            for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                nodes += walk(part, patterns)?;
                if !is_control {
                    nodes += charged(part);
                }
            }
        }
        Expr::Select(select) => nodes += walk(&mut select.operand, patterns)?,
        Expr::List(list) => {
            for element in &mut list.elements {
                nodes += walk(element, patterns)? + charged(element);
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    nodes += walk(&mut entry.key, patterns)? + walk(&mut entry.value, patterns)?;
                    nodes += charged(&mut entry.key) + charged(&mut entry.value);
                }
            }
        }
        // `check` refuses literals of messages.
        Expr::Struct(_) => {}
        Expr::Comprehension(comprehension) => {
            nodes += walk(&mut comprehension.iter_range, patterns)?;
            let step = steps(&mut comprehension.loop_step, &comprehension.accu_var, patterns)?;
            let body = 1 + step + walk(&mut comprehension.loop_cond, patterns)?;
            nodes += walk(&mut comprehension.result, patterns)?;
            let range = std::mem::take(&mut comprehension.iter_range);
            let body = literal(LiteralValue::Int(CelInt::from(body.cast_signed())));
            comprehension.iter_range = call(LOOP, vec![range, body]);
        }
    }
    Ok(nodes)
}

/// Like [`walk`], for the step of a loop. The outermost nodes of a step come from CEL's macros.
/// Their operand that is the accumulator is not charged, because the interpreter appends to it in
/// place.
fn steps(node: &mut IdedExpr, accumulator: &str, patterns: &mut Patterns) -> Result<u64, String> {
    let is_accumulator = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if name == accumulator);
    match &mut node.expr {
        Expr::Call(call) if call.target.is_none() && call.args.iter().any(is_accumulator) => {
            let mut nodes = 1;
            for part in call.args.iter_mut().filter(|part| !is_accumulator(part)) {
                nodes += steps(part, accumulator, patterns)?;
            }
            Ok(nodes)
        }
        _ => walk(node, patterns),
    }
}

/// Puts `@cost` around a node, unless it is a literal. Returns the count of added nodes.
fn charged(node: &mut IdedExpr) -> u64 {
    if matches!(node.expr, Expr::Literal(_)) {
        return 0;
    }
    let inner = std::mem::take(node);
    *node = call(COST, vec![inner]);
    1
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

fn literal(value: LiteralValue) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Literal(value) }
}

fn collect(pattern: Option<&IdedExpr>, patterns: &mut Patterns) -> Result<(), String> {
    let Some(Expr::Literal(LiteralValue::String(pattern))) = pattern.map(|pattern| &pattern.expr) else {
        return Err("the pattern of matches() must be a literal text".to_owned());
    };
    let pattern = pattern.inner();
    if !patterns.contains_key(pattern) {
        let limited = RegexBuilder::new(pattern).size_limit(TYPE_PATTERN_BYTES_MAX).nest_limit(32).build();
        let compiled = limited.map_err(|error| format!("the pattern {pattern:?} cannot be used: {error}"))?;
        patterns.insert(pattern.to_owned(), compiled);
    }
    Ok(())
}
