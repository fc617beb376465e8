//! The rule about the wording of comments, over the whole project: noun first, and concrete
//! subjects.
//!
//! A sentence with "who", "what" or "whoever" as its subject must be read twice. A few of them are
//! good English, so the rule is a bound on their share of all comment lines.

use crate::source::Source;

/// Words that stand in place of a noun.
const STAND_INS: &[&str] = &["who", "whom", "whose", "whoever", "whomever", "what", "whatever"];
/// Most comment lines with a word of [`STAND_INS`], percent of all comment lines.
const TURNING_PERCENT_MAX: usize = 5;
/// Most doc comments whose first word is "What", count.
const BEGINNING_WITH_WHAT_MAX: usize = 19;

/// Counts over the comments of Rust files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Comment lines, doc comments included.
    pub(crate) lines: usize,
    /// Comment lines with a word of [`STAND_INS`].
    pub(crate) turning: usize,
    /// Doc comments whose first word is "What".
    pub(crate) beginning_with_what: usize,
}

impl Words {
    /// Counts the comments of all Rust files.
    pub(crate) fn of<'s>(sources: impl IntoIterator<Item = &'s Source>) -> Self {
        let mut words = Self::default();
        sources.into_iter().filter(|source| source.is_rust()).for_each(|source| words.count(&source.text));
        words
    }

    fn count(&mut self, text: &str) {
        let mut in_doc = false;
        for line in text.lines().map(str::trim_start) {
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) = doc.or_else(|| line.strip_prefix("//")) {
                self.lines += 1;
                self.turning += usize::from(words(comment).any(|word| STAND_INS.contains(&&*word.to_lowercase())));
            }
            if let (Some(comment), false) = (doc, in_doc) {
                self.beginning_with_what += usize::from(words(comment).next() == Some("What"));
            }
            in_doc = doc.is_some();
        }
    }

    /// Description of the violated bound; `None` if both hold.
    pub(crate) fn finding(&self) -> Option<String> {
        let Self { lines, turning, beginning_with_what } = self;
        if turning * 100 > lines * TURNING_PERCENT_MAX {
            return Some(format!(
                "{turning} of {lines} comment lines turn on {}: at most {TURNING_PERCENT_MAX} %; name the subject first",
                STAND_INS.join(", ")
            ));
        }
        (*beginning_with_what > BEGINNING_WITH_WHAT_MAX).then(|| {
            format!("{beginning_with_what} doc comments begin with \"What\", at most {BEGINNING_WITH_WHAT_MAX}: begin with the noun")
        })
    }
}

fn words(comment: &str) -> impl Iterator<Item = &str> {
    comment.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn comments_are_counted_and_code_is_not() {
    let text = "\
//! What a file owns.
//! It goes on, whatever happens.
fn f() {
    // Nobody knows whose it is.
    let what = \"who\"; // not the beginning of the line
}
/// What it is.
///
/// What else it is.
struct S;
/// The whole: `what_if` and whole words only.
struct T;
";
    let mut words = Words::default();
    words.count(text);
    assert_eq!(words, Words { lines: 7, turning: 5, beginning_with_what: 2 });
}

#[test]
fn too_many_are_a_finding() {
    let words = |turning, beginning_with_what| Words { lines: 1000, turning, beginning_with_what };
    assert_eq!(words(50, BEGINNING_WITH_WHAT_MAX).finding(), None);
    assert!(words(51, 0).finding().unwrap().contains("51 of 1000 comment lines"));
    assert!(words(0, BEGINNING_WITH_WHAT_MAX + 1).finding().unwrap().contains("begin with \"What\""));
}
