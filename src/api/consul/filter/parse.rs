//! The grammar of filters, as go-bexpr documents it.
//!
//! ```text
//! expression = and {"or" and}
//! and        = not {"and" not}
//! not        = "not" not | "(" expression ")" | match
//! match      = selector ("==" | "!=" | ["not"] "contains" | ["not"] "matches") value
//!            | selector "is" ["not"] "empty"
//!            | value ["not"] "in" selector
//! selector   = name {"." name | "." number | "[" string "]"} | string that is a JSON pointer
//! value      = selector, for its text | number | string
//! ```
//!
//! Written by hand rather than with a parser library: every error text is part of an answer, and
//! most depend on the token that was found; whether a dot belongs to a number depends on the token
//! before it.

use headwater_types::limits::CONSUL_FILTER_DEPTH_MAX;

/// A parsed expression, not yet checked against a shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parsed {
    Or(Box<Parsed>, Box<Parsed>),
    And(Box<Parsed>, Box<Parsed>),
    Not(Box<Parsed>),
    Match(Match),
}

/// One comparison of the value at a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Match {
    pub(super) path: Vec<String>,
    pub(super) op: Op,
    pub(super) is_negated: bool,
    /// The value to compare with; empty for [`Op::Empty`].
    pub(super) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    /// The selected list, map or text contains the value.
    In,
    Matches,
    Empty,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, a keyword or a part of a selector.
    Word(String),
    Number(String),
    String(String),
    Dot,
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    Equal,
    NotEqual,
}

/// Parses a whole expression, which must not be blank. The error is the reason why it is invalid.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let parsed = parser.or()?;
    match parser.peek() {
        None => Ok(parsed),
        Some(token) => Err(format!("{} where the expression could end", name(token))),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let take = |pattern: fn(char) -> bool| rest.find(|c| !pattern(c)).unwrap_or(rest.len());
        let (token, length) = match first {
            ' ' | '\t' | '\r' | '\n' => {
                rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
                continue;
            }
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '[' => (Token::OpenIndex, 1),
            ']' => (Token::CloseIndex, 1),
            '.' => (Token::Dot, 1),
            '=' if rest.starts_with("==") => (Token::Equal, 2),
            '!' if rest.starts_with("!=") => (Token::NotEqual, 2),
            '"' | '`' => string(rest, first)?,
            c if c.is_ascii_alphabetic() => {
                let length = take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/');
                (Token::Word(rest[..length].to_owned()), length)
            }
            c if c.is_ascii_digit() || c == '-' => number(rest, tokens.last())?,
            c => return Err(format!("{c:?} begins nothing that an expression consists of")),
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// The string at the beginning of `rest`, and its length with the quotes, bytes. `quote` is its
/// first character. In double quotes, the escapes are `\n`, `\t`, `\r`, `\"`, `\\`, `\'`, and `\x`,
/// `\u`, `\U` with 2, 4 or 8 hex digits of the character's code. Any other escape is an error. Back
/// quotes have no escapes.
fn string(rest: &str, quote: char) -> Result<(Token, usize), String> {
    let inner = &rest[1..];
    if quote == '`' {
        let end = inner.find('`').ok_or("a string does not end")?;
        return Ok((Token::String(inner[..end].to_owned()), end + 2));
    }
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::String(value), at + 2)),
            '\\' => {
                let (_, escaped) = chars.next().ok_or("a string does not end")?;
                value.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '"' | '\\' | '\'' => escaped,
                    'x' => code(&mut chars, 2)?,
                    'u' => code(&mut chars, 4)?,
                    'U' => code(&mut chars, 8)?,
                    other => return Err(format!("\\{other} is no escape; use back quotes for a text as it is")),
                });
            }
            c => value.push(c),
        }
    }
    Err("a string does not end".to_owned())
}

fn code(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Result<char, String> {
    let text: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
    let is_good = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| is_good).and_then(char::from_u32);
    code.ok_or_else(|| format!("{text:?} is no code of a character"))
}

fn number(rest: &str, before: Option<&Token>) -> Result<(Token, usize), String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(rest.starts_with('-'));
    let mut length = sign + digits(&rest[sign..]);
    // After a dot, a number is an index in a list: the next dot does not belong to it.
    let is_after_dot = before == Some(&Token::Dot);
    if !is_after_dot && rest[length..].starts_with('.') {
        let fraction = digits(&rest[length + 1..]);
        length += if fraction > 0 { 1 + fraction } else { 0 };
    }
    let text = &rest[..length];
    let whole = text[sign..].split('.').next().unwrap_or_default();
    let ends = rest[length..].chars().next().is_none_or(|c| c.is_whitespace() || c == ')' || is_after_dot);
    if whole.is_empty() || whole.len() > 1 && whole.starts_with('0') || !ends {
        let shown: String = rest.chars().take(20).collect();
        return Err(format!("{shown:?} is no number; write other values in quotes"));
    }
    Ok((Token::Number(text.to_owned()), length))
}

fn name(token: &Token) -> String {
    match token {
        Token::Word(text) | Token::Number(text) => format!("{text:?}"),
        Token::String(text) => format!("the string {text:?}"),
        Token::Dot => "\".\"".to_owned(),
        Token::Open => "\"(\"".to_owned(),
        Token::Close => "\")\"".to_owned(),
        Token::OpenIndex => "\"[\"".to_owned(),
        Token::CloseIndex => "\"]\"".to_owned(),
        Token::Equal => "\"==\"".to_owned(),
        Token::NotEqual => "\"!=\"".to_owned(),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

/// One side of a comparison.
enum Operand {
    Path(Vec<String>),
    Number(String),
    String(String),
}

impl Operand {
    fn into_value(self) -> String {
        match self {
            Self::Path(path) => path.join("."),
            Self::Number(text) | Self::String(text) => text,
        }
    }

    fn into_path(self) -> Result<Vec<String>, String> {
        match self {
            Self::Path(path) => Ok(path),
            Self::String(text) if text.starts_with('/') => {
                Ok(text[1..].split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
            }
            Self::Number(text) | Self::String(text) => Err(format!("{text:?} selects nothing; a name stands there")),
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    fn takes(&mut self, wanted: &Token) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Word(word)) if word == wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > CONSUL_FILTER_DEPTH_MAX {
            return Err(format!("more than {CONSUL_FILTER_DEPTH_MAX} parts inside each other"));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn or(&mut self) -> Result<Parsed, String> {
        let mut left = self.and()?;
        let mut joined = 0;
        while self.takes_word("or") {
            joined += 1;
            bounded(joined)?;
            left = Parsed::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Parsed, String> {
        let mut left = self.not()?;
        let mut joined = 0;
        while self.takes_word("and") {
            joined += 1;
            bounded(joined)?;
            left = Parsed::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Parsed, String> {
        // `not` may also be a selector's name, as in `not == 3`; go-bexpr reads it as the operator,
        // too.
        if self.takes_word("not") {
            return Ok(Parsed::Not(Box::new(self.deeper(Self::not)?)));
        }
        if self.takes(&Token::Open) {
            let inner = self.deeper(Self::or)?;
            return match self.takes(&Token::Close) {
                true => Ok(inner),
                false => Err("Unmatched parentheses".to_owned()),
            };
        }
        self.comparison().map(Parsed::Match)
    }

    fn comparison(&mut self) -> Result<Match, String> {
        let left = self.operand()?;
        let with = |path, op, is_negated, value| Ok(Match { path, op, is_negated, value });
        if self.takes(&Token::Equal) {
            return with(left.into_path()?, Op::Equal, false, self.operand()?.into_value());
        }
        if self.takes(&Token::NotEqual) {
            return with(left.into_path()?, Op::Equal, true, self.operand()?.into_value());
        }
        if self.takes_word("is") {
            let is_negated = self.takes_word("not");
            return match self.takes_word("empty") {
                true => with(left.into_path()?, Op::Empty, is_negated, String::new()),
                false => Err("after \"is\" comes \"empty\" or \"not empty\"".to_owned()),
            };
        }
        let is_negated = self.takes_word("not");
        if self.takes_word("in") {
            return with(self.operand()?.into_path()?, Op::In, is_negated, left.into_value());
        }
        if self.takes_word("contains") {
            return with(left.into_path()?, Op::In, is_negated, self.operand()?.into_value());
        }
        if self.takes_word("matches") {
            return with(left.into_path()?, Op::Matches, is_negated, self.operand()?.into_value());
        }
        let found = self.peek().map_or("the end".to_owned(), name);
        Err(format!("{found} where an operator is wanted: ==, !=, in, contains, matches or is empty"))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let first = match self.next() {
            Some(Token::Number(text)) => return Ok(Operand::Number(text.clone())),
            Some(Token::String(text)) => return Ok(Operand::String(text.clone())),
            Some(Token::Word(word)) => word.clone(),
            Some(other) => return Err(format!("{} where a name or a value is wanted", name(other))),
            None => return Err("the expression ends where a name or a value is wanted".to_owned()),
        };
        let mut path = vec![first];
        loop {
            if self.takes(&Token::Dot) {
                match self.next() {
                    Some(Token::Word(word) | Token::Number(word)) => path.push(word.clone()),
                    _ => return Err("after a dot comes a name".to_owned()),
                }
            } else if self.takes(&Token::OpenIndex) {
                match self.next() {
                    Some(Token::String(key)) => path.push(key.clone()),
                    _ => return Err("Invalid index: a string stands in brackets".to_owned()),
                }
                if !self.takes(&Token::CloseIndex) {
                    return Err("Unclosed index expression".to_owned());
                }
            } else {
                return Ok(Operand::Path(path));
            }
        }
    }
}

/// Refuses a chain of more than four times [`CONSUL_FILTER_DEPTH_MAX`] operators: its tree is as
/// deep as the chain is long.
fn bounded(joined: usize) -> Result<(), String> {
    let max = CONSUL_FILTER_DEPTH_MAX * 4;
    if joined > max { Err(format!("more than {max} parts joined")) } else { Ok(()) }
}
