//! Environment variables of the program that are not settings, and misspelt names of settings.
//!
//! Owns the list of such variables. Invariant: a name that resembles a setting is reported, never
//! ignored.

use super::settings::SETTINGS;
use super::{Problem, value};

/// Variables of the program and of its scripts that are no settings.
const OTHER_VARIABLES: &[&str] = &[
    "HEADWATER_CONFIG",
    "HEADWATER_ENDPOINTS",
    "HEADWATER_BIN",
    "HEADWATER_RUN_DIR",
    "HEADWATER_PORT_OFFSET",
    "HEADWATER_WAIT_SECONDS",
    "HEADWATER_USER",
    "HEADWATER_PASSWORD",
    "HEADWATER_TOKEN",
    "HEADWATER_TOKEN_FILE",
];

/// The problem of a variable with a misspelt name: one with the prefix that is one or two edits
/// from the name of a setting. `None` for every other name, and for the variables listed above.
/// Variables that container platforms make of the name of a service differ by more edits.
pub(super) fn misspelt(variable: &str) -> Option<Problem> {
    if !variable.starts_with("HEADWATER_") || OTHER_VARIABLES.contains(&variable) {
        return None;
    }
    let nearest = SETTINGS
        .iter()
        .map(|setting| (value::distance(variable, &setting.variable()), setting))
        .min_by_key(|(d, _)| *d);
    let (_, setting) = nearest.filter(|(distance, _)| (1..=2).contains(distance))?;
    let detail = format!("is no setting; did you mean {}?", setting.variable());
    Some(Problem { origin: "the environment".to_owned(), key: variable.to_owned(), detail })
}
