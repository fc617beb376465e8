//! A table of the state, which redraws itself.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::SubscribeArgs;
use super::show::{HEADER, row};
use crate::ClientArgs;
use crate::error::CliError;
use crate::output::print_table;
use headwater_client::{
    Endpoints, Instances, MaterializedView, Names, ServiceHealth, ServiceList, View, ViewError, ViewTopic,
};

/// Longest wait for a change before the table looks whether the connection is gone.
const GLANCE: Duration = Duration::from_millis(500);
/// ANSI sequence: cursor to the top left corner, then clear the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// A topic with a table of its state.
pub(super) trait Tabular: ViewTopic {
    const HEADER: &'static [&'static str];

    fn rows(state: &Self::State) -> Vec<Vec<String>>;
}

impl Tabular for ServiceHealth {
    const HEADER: &'static [&'static str] = HEADER;

    fn rows(state: &Instances) -> Vec<Vec<String>> {
        state.instances().map(|instance| row(instance)).collect()
    }
}

impl Tabular for ServiceList {
    const HEADER: &'static [&'static str] = &["SERVICE"];

    fn rows(state: &Names) -> Vec<Vec<String>> {
        state.iter().map(|name| vec![name.clone()]).collect()
    }
}

pub(super) async fn run<T: Tabular>(
    topic: T,
    endpoints: Endpoints,
    args: &SubscribeArgs,
    client: &ClientArgs,
) -> Result<(), CliError> {
    let view = MaterializedView::start(topic, endpoints);
    let mut out = std::io::stdout();
    let clear = if out.is_terminal() && !args.once { CLEAR } else { "" };
    let mut shown = match view.query(0, client.timeout).await {
        Ok(first) => first,
        Err(ViewError::Refused(status)) => return Err(CliError::Finding(status.message().to_owned())),
        Err(error @ (ViewError::NotLoaded | ViewError::Unavailable(_) | ViewError::Stopped)) => {
            return Err(CliError::Finding(format!("{error}\nAsked: {}", client.endpoints.join(", "))));
        }
    };
    let mut trouble = None;
    loop {
        draw::<T>(&mut out, clear, &shown, trouble.as_deref())?;
        if args.once {
            return Ok(());
        }
        loop {
            let (next, problem) = match view.query(shown.index, GLANCE).await {
                Ok(next) => (next, None),
                Err(ViewError::Refused(status)) => return Err(CliError::Finding(status.message().to_owned())),
                Err(error @ (ViewError::NotLoaded | ViewError::Unavailable(_) | ViewError::Stopped)) => {
                    (view.latest().unwrap_or_else(|| shown.clone()), Some(error.to_string()))
                }
            };
            let problem = if next.is_stale { problem.or_else(|| trouble.clone()) } else { None };
            if (next.index, next.is_stale, &problem) != (shown.index, shown.is_stale, &trouble) {
                (shown, trouble) = (next, problem);
                break;
            }
        }
    }
}

fn draw<T: Tabular>(
    out: &mut impl Write,
    clear: &str,
    view: &View<T::State>,
    trouble: Option<&str>,
) -> Result<(), CliError> {
    let rows = T::rows(&view.state);
    write!(out, "{clear}")?;
    print_table(out, T::HEADER, rows.iter().cloned())?;
    let state = match (view.is_stale, trouble) {
        (false, _) => String::new(),
        (true, None) => "; the connection is gone, this is what was there".to_owned(),
        (true, Some(trouble)) => format!("; this is what was there: {trouble}"),
    };
    writeln!(out, "{} at index {}{state}", rows.len(), view.index)?;
    Ok(out.flush()?)
}
