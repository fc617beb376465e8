//! The difference of two texts by lines.

/// Number of unchanged lines that are kept before and after a change.
const CONTEXT: usize = 3;
/// Bound on the lines of the old text times those of the new one, without the common lines at both
/// ends. Above it, all these lines are shown as replaced.
const COMPARED_MAX: usize = 4_000_000;

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// In both texts.
    Same(String),
    /// In the old text alone.
    Old(String),
    /// In the new text alone.
    New(String),
    /// One or more lines of both texts that are left out.
    Gap,
}

/// The difference of two texts: the changed lines, up to `CONTEXT` unchanged ones around them, and
/// gaps for the rest.
pub(super) fn patch(old: &[String], new: &[String]) -> Vec<Line> {
    let lines = differences(old, new);
    let is_change = |line: &Line| matches!(line, Line::Old(_) | Line::New(_));
    let near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        lines[from..lines.len().min(at + CONTEXT + 1)].iter().any(is_change)
    };
    let mut shown = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if near(at) {
            shown.push(line.clone());
        } else if shown.last() != Some(&Line::Gap) {
            shown.push(Line::Gap);
        }
    }
    shown
}

/// Every line of both texts, without gaps. The lines of a longest common subsequence are
/// `Line::Same`, unless the texts exceed `COMPARED_MAX`.
fn differences(old: &[String], new: &[String]) -> Vec<Line> {
    let same_head = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[same_head..], &new[same_head..]);
    let same_tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_rest, tail) = old_rest.split_at(old_rest.len() - same_tail);
    let new_rest = &new_rest[..new_rest.len() - same_tail];
    let mut lines: Vec<Line> = old[..same_head].iter().cloned().map(Line::Same).collect();
    if old_rest.len().saturating_mul(new_rest.len()) > COMPARED_MAX {
        lines.extend(old_rest.iter().cloned().map(Line::Old));
        lines.extend(new_rest.iter().cloned().map(Line::New));
    } else {
        middle(old_rest, new_rest, &mut lines);
    }
    lines.extend(tail.iter().cloned().map(Line::Same));
    lines
}

fn middle(old: &[String], new: &[String], lines: &mut Vec<Line>) {
    // Length of the longest common subsequence of the rests from each pair of positions on.
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for (at_old, line) in old.iter().enumerate().rev() {
        for (at_new, other) in new.iter().enumerate().rev() {
            common[at_old * width + at_new] = match line == other {
                true => common[(at_old + 1) * width + at_new + 1] + 1,
                false => common[(at_old + 1) * width + at_new].max(common[at_old * width + at_new + 1]),
            };
        }
    }
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < old.len() || at_new < new.len() {
        let takes_old = at_new == new.len()
            || at_old < old.len() && common[(at_old + 1) * width + at_new] >= common[at_old * width + at_new + 1];
        if at_old < old.len() && at_new < new.len() && old[at_old] == new[at_new] {
            lines.push(Line::Same(old[at_old].clone()));
            (at_old, at_new) = (at_old + 1, at_new + 1);
        } else if takes_old {
            lines.push(Line::Old(old[at_old].clone()));
            at_old += 1;
        } else {
            lines.push(Line::New(new[at_new].clone()));
            at_new += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> String {
        let lines = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let show = |line: Line| match line {
            Line::Same(text) => text,
            Line::Old(text) => format!("-{text}"),
            Line::New(text) => format!("+{text}"),
            Line::Gap => "…".to_owned(),
        };
        patch(&lines(old), &lines(new)).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_of_both_are_kept() {
        for (old, new, wanted) in [
            ("", "", ""),
            ("", "a", "+a"),
            ("a", "", "-a"),
            ("abc", "abc", "…"),
            ("abc", "axc", "a -b +x c"),
            ("abcd", "bcde", "-a b c d +e"),
            ("abcdefgh", "abcdefgx", "… e f g -h +x"),
            ("abcabba", "cbabac", "-a -b c -a b +a b a +c"),
        ] {
            assert_eq!(shown(old, new), wanted, "{old} {new}");
        }
    }

    #[test]
    fn very_long_texts_are_replaced() {
        let lines = |from: usize| (from..from + 3000).map(|line| line.to_string()).collect::<Vec<_>>();
        assert_eq!(differences(&lines(0), &lines(10_000)).len(), 6000);
    }
}
