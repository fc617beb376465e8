//! Type checker of rules: at registration it refuses unknown variables, functions and fields, and
//! rules that are not boolean. The interpreter of the crate `cel` has no type checker. This one
//! knows messages, lists and maps, and accepts every expression of unknown type.
//!
//! It also rewrites the expression: names of enumeration values become their numbers, and `has()`
//! becomes a call of a function that knows messages.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelInt, CelString};
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use super::meter::HAS;

/// The known type of a value.
#[derive(Clone, Debug)]
enum Shape {
    /// A type that is not known before the rule is evaluated.
    Any,
    Bool,
    /// A value that is neither a container nor a bool, with the name of its type.
    Scalar(&'static str),
    Message(MessageDescriptor),
    /// The variable `resource`.
    Resource,
    List(Box<Shape>),
    /// A map with values of this type; keys are not checked.
    Map(Box<Shape>),
}

impl Shape {
    fn name(&self) -> String {
        match self {
            Self::Any => "anything".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Scalar(name) => (*name).to_owned(),
            Self::Message(message) => message.full_name().to_owned(),
            Self::Resource => "resource".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// Functions that rules may call, other than operators and macros, with the types of their results.
const FUNCTIONS: &[(&str, Shape)] = &[
    ("size", Shape::Scalar("int")),
    ("contains", Shape::Bool),
    ("startsWith", Shape::Bool),
    ("endsWith", Shape::Bool),
    ("matches", Shape::Bool),
    ("int", Shape::Scalar("int")),
    ("uint", Shape::Scalar("uint")),
    ("double", Shape::Scalar("double")),
    ("string", Shape::Scalar("string")),
    ("bytes", Shape::Scalar("bytes")),
    ("bool", Shape::Bool),
    ("type", Shape::Scalar("type")),
    ("dyn", Shape::Any),
    ("duration", Shape::Scalar("duration")),
    ("timestamp", Shape::Scalar("timestamp")),
    ("getDate", Shape::Scalar("int")),
    ("getDayOfMonth", Shape::Scalar("int")),
    ("getDayOfWeek", Shape::Scalar("int")),
    ("getDayOfYear", Shape::Scalar("int")),
    ("getFullYear", Shape::Scalar("int")),
    ("getHours", Shape::Scalar("int")),
    ("getMilliseconds", Shape::Scalar("int")),
    ("getMinutes", Shape::Scalar("int")),
    ("getMonth", Shape::Scalar("int")),
    ("getSeconds", Shape::Scalar("int")),
];

/// Names of types, as in `type(x) == int`.
const TYPES: &[&str] = &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// Checks a rule for data of this message, and rewrites enumeration values and `has()` in it. The
/// result of the rule must be boolean or of unknown type. The error is a text for the author of the
/// rule.
pub(super) fn check(code: &mut IdedExpr, message: &MessageDescriptor) -> Result<(), String> {
    let mut scope = Scope {
        message: message.clone(),
        variables: vec![("data".to_owned(), Shape::Message(message.clone())), ("resource".to_owned(), Shape::Resource)],
    };
    match scope.visit(code)? {
        Shape::Any | Shape::Bool => Ok(()),
        other => Err(format!("it is {}, not true or false", other.name())),
    }
}

/// Whether the syntax tree is at most `depth_max` nodes deep. Evaluation and checks recurse once
/// for each level.
pub(super) fn is_shallow(node: &IdedExpr, depth_max: usize) -> bool {
    let Some(left) = depth_max.checked_sub(1) else { return false };
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => true,
        Expr::Select(select) => is_shallow(&select.operand, left),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).all(|part| is_shallow(part, left)),
        Expr::List(list) => list.elements.iter().all(|element| is_shallow(element, left)),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => is_shallow(&entry.key, left) && is_shallow(&entry.value, left),
            EntryExpr::StructField(_) => true,
        }),
        Expr::Comprehension(it) => [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result]
            .iter()
            .all(|p| is_shallow(p, left)),
    }
}

struct Scope {
    message: MessageDescriptor,
    variables: Vec<(String, Shape)>,
}

impl Scope {
    fn visit(&mut self, node: &mut IdedExpr) -> Result<Shape, String> {
        if let Some(number) = self.enum_value(&node.expr) {
            node.expr = Expr::Literal(LiteralValue::Int(CelInt::from(i64::from(number))));
        }
        match &mut node.expr {
            Expr::Unspecified => Ok(Shape::Any),
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) if select.test => {
                let operand = self.visit(&mut select.operand)?;
                member(&operand, &select.field)?;
                let field = CelString::from(std::mem::take(&mut select.field));
                let field = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::String(field)) };
                let args = vec![std::mem::take(&mut *select.operand), field];
                node.expr = Expr::Call(CallExpr { func_name: HAS.to_owned(), target: None, args });
                Ok(Shape::Bool)
            }
            Expr::Select(select) => {
                let operand = self.visit(&mut select.operand)?;
                member(&operand, &select.field)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut shapes = Vec::with_capacity(list.elements.len());
                for element in &mut list.elements {
                    shapes.push(self.visit(element)?);
                }
                Ok(Shape::List(Box::new(if shapes.len() == 1 { shapes.remove(0) } else { Shape::Any })))
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        self.visit(&mut entry.key)?;
                        self.visit(&mut entry.value)?;
                    }
                }
                Ok(Shape::Map(Box::new(Shape::Any)))
            }
            Expr::Struct(literal) => Err(format!("messages such as {} cannot be made in a rule", literal.type_name)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn variable(&self, name: &str) -> Result<Shape, String> {
        if let Some((_, shape)) = self.variables.iter().rev().find(|(known, _)| known == name) {
            return Ok(shape.clone());
        }
        if TYPES.contains(&name) {
            return Ok(Shape::Scalar("type"));
        }
        Err(format!("{name} is not known; there are data and resource"))
    }

    /// The number of an enumeration value `Enum.VALUE`; `Enum` is the full name, or a name relative
    /// to the scope of the message. `None` for any other expression, an unknown value, and a path
    /// that begins with a variable.
    fn enum_value(&self, expr: &Expr) -> Option<i32> {
        let Expr::Select(last) = expr else { return None };
        let mut names = vec![last.field.as_str()];
        let mut at = &last.operand.expr;
        let root = loop {
            match at {
                Expr::Select(select) if !select.test => {
                    names.push(&select.field);
                    at = &select.operand.expr;
                }
                Expr::Ident(root) => break root,
                _ => return None,
            }
        };
        if last.test || self.variables.iter().any(|(known, _)| known == root) {
            return None;
        }
        names.push(root);
        let value = names.remove(0);
        names.reverse();
        let path = names.join(".");
        let pool = self.message.parent_pool();
        // The order in which protoc resolves names: from the innermost scope outwards.
        let mut scope = self.message.full_name();
        loop {
            let candidate = if scope.is_empty() { path.clone() } else { format!("{scope}.{path}") };
            if let Some(found) = pool.get_enum_by_name(&candidate) {
                return found.get_value_by_name(value).map(|value| value.number());
            }
            if scope.is_empty() {
                return None;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }

    fn call(&mut self, call: &mut CallExpr) -> Result<Shape, String> {
        let mut shapes = Vec::with_capacity(call.args.len() + 1);
        for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            shapes.push(self.visit(part)?);
        }
        let first = || shapes.first().cloned().unwrap_or(Shape::Any);
        match call.func_name.as_str() {
            operators::CONDITIONAL => match shapes.as_slice() {
                [_, Shape::Bool, Shape::Bool] => Ok(Shape::Bool),
                _ => Ok(Shape::Any),
            },
            operators::INDEX => match shapes.into_iter().next() {
                Some(Shape::List(inner) | Shape::Map(inner)) => Ok(*inner),
                Some(Shape::Any) | None => Ok(Shape::Any),
                Some(other) => Err(format!("{} has no elements", other.name())),
            },
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE => {
                match shapes.iter().find(|s| !matches!(s, Shape::Bool | Shape::Any)) {
                    Some(other) => Err(format!("{} is neither true nor false", other.name())),
                    None => Ok(Shape::Bool),
                }
            }
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::IN => Ok(Shape::Bool),
            operators::ADD => Ok(first()),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | operators::NEGATE => {
                Ok(Shape::Any)
            }
            name => match FUNCTIONS.iter().find(|(known, _)| *known == name) {
                Some((_, shape)) => Ok(shape.clone()),
                None => Err(format!("there is no function {name}()")),
            },
        }
    }

    fn comprehension(&mut self, comprehension: &mut ComprehensionExpr) -> Result<Shape, String> {
        let (first, second) = match (self.visit(&mut comprehension.iter_range)?, &comprehension.iter_var2) {
            (Shape::List(item), None) => (*item, Shape::Any),
            (Shape::List(item), Some(_)) => (Shape::Scalar("int"), *item),
            (Shape::Map(item), _) => (Shape::Any, *item),
            (Shape::Any, _) => (Shape::Any, Shape::Any),
            (other, _) => return Err(format!("{} has no elements to go through", other.name())),
        };
        let accumulator = self.visit(&mut comprehension.accu_init)?;
        let before = self.variables.len();
        self.variables.push((comprehension.accu_var.clone(), accumulator));
        let result = {
            self.variables.push((comprehension.iter_var.clone(), first));
            if let Some(name) = &comprehension.iter_var2 {
                self.variables.push((name.clone(), second));
            }
            self.visit(&mut comprehension.loop_cond)?;
            self.visit(&mut comprehension.loop_step)?;
            self.variables.truncate(before + 1);
            self.visit(&mut comprehension.result)
        };
        self.variables.truncate(before);
        result
    }
}

fn of_literal(literal: &LiteralValue) -> Shape {
    match literal {
        LiteralValue::Boolean(_) => Shape::Bool,
        LiteralValue::Bytes(_) => Shape::Scalar("bytes"),
        LiteralValue::Double(_) => Shape::Scalar("double"),
        LiteralValue::Int(_) => Shape::Scalar("int"),
        LiteralValue::Null => Shape::Scalar("null"),
        LiteralValue::String(_) => Shape::Scalar("string"),
        LiteralValue::UInt(_) => Shape::Scalar("uint"),
    }
}

fn member(operand: &Shape, field: &str) -> Result<Shape, String> {
    match operand {
        Shape::Any => Ok(Shape::Any),
        Shape::Map(values) => Ok((**values).clone()),
        Shape::Message(message) => match message.get_field_by_name(field) {
            Some(field) => Ok(of_field(&field)),
            None => {
                let known: Vec<_> = message.fields().map(|field| field.name().to_owned()).collect();
                Err(format!("{} has no field {field}; it has {}", message.full_name(), known.join(", ")))
            }
        },
        Shape::Resource => match field {
            "name" | "partition" | "namespace" => Ok(Shape::Scalar("string")),
            "metadata" => Ok(Shape::Map(Box::new(Shape::Scalar("string")))),
            other => Err(format!("resource has no {other}; it has name, partition, namespace and metadata")),
        },
        other => Err(format!("{} has no fields, so no {field}", other.name())),
    }
}

fn of_field(field: &FieldDescriptor) -> Shape {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return Shape::Any };
        return Shape::Map(Box::new(of_kind(&entry.map_entry_value_field().kind())));
    }
    let one = of_kind(&field.kind());
    if field.cardinality() == Cardinality::Repeated { Shape::List(Box::new(one)) } else { one }
}

fn of_kind(kind: &Kind) -> Shape {
    match kind {
        Kind::Bool => Shape::Bool,
        Kind::String => Shape::Scalar("string"),
        Kind::Bytes => Shape::Scalar("bytes"),
        Kind::Double | Kind::Float => Shape::Scalar("double"),
        Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => Shape::Scalar("uint"),
        Kind::Int32 | Kind::Int64 | Kind::Sint32 | Kind::Sint64 | Kind::Sfixed32 | Kind::Sfixed64 | Kind::Enum(_) => {
            Shape::Scalar("int")
        }
        Kind::Message(message) => match message.full_name().strip_prefix("google.protobuf.") {
            Some("Timestamp") => Shape::Scalar("timestamp"),
            Some("Duration") => Shape::Scalar("duration"),
            Some("Struct") => Shape::Map(Box::new(Shape::Any)),
            Some("ListValue") => Shape::List(Box::new(Shape::Any)),
            Some("Any") => Shape::Message(message.clone()),
            Some(_) => Shape::Any,
            None => Shape::Message(message.clone()),
        },
    }
}
