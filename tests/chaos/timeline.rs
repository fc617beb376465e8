//! The picture of a run: faults, incarnations of the nodes, and answers to clients, on one axis of
//! time.

use std::fmt::Write;

use crate::check::Findings;
use crate::check::outage::{Window, seconds};
use crate::check::usage::Usage;
use crate::history::{Micros, Outcome, Record};
use crate::rig::TimelineSpan;

/// Least width of the picture, pixels: that of a browser window. The picture of a long run is wider
/// and is scrolled.
const WIDTH_MIN: f64 = 1400.0;
const SECOND: f64 = 5.0;
const LEFT: f64 = 90.0;
/// Height for the names of faults.
const HEAD: f64 = 60.0;
/// Least distance of two names, pixels: a name that would overlap is shown only under the pointer.
const LABEL: f64 = 14.0;
const LANE: f64 = 26.0;
const RATE: f64 = 120.0;
const DOTS: f64 = 160.0;
/// Time that one column of the rate covers, microseconds.
const BIN: Micros = 500_000;
/// Latency at the top of its plot, microseconds; longer ones are drawn there.
const LATENCY_MAX: f64 = 4e6;
/// Most latencies that are drawn: of more, a regular sample.
const DOTS_MAX: usize = 6000;

/// The run as an SVG picture. `nodes` is their number; `ends` is the end of the run.
pub(crate) fn picture(
    records: &[Record],
    marks: &[TimelineSpan],
    windows: &[Window],
    usage: &Usage,
    nodes: usize,
    ends: Micros,
) -> String {
    let width = (LEFT + 10.0 + seconds(ends) * SECOND).max(WIDTH_MIN);
    let scale = (width - LEFT - 10.0) / ends.max(1) as f64;
    let x = |at: Micros| LEFT + at as f64 * scale;
    let lanes = LANE * (nodes as f64 + 1.0);
    let (rate_top, dots_top) = (lanes + 40.0, lanes + 40.0 + RATE + 30.0);
    let memory_top = dots_top + DOTS + 30.0;
    let height = memory_top + 90.0;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0}' height='{:.0}' font-family='sans-serif' font-size='11'>\n\
         <g transform='translate(0,{HEAD})'>\n",
        height + HEAD
    );
    let mut add = |text: String| svg.push_str(&text);
    let mut labelled = f64::NEG_INFINITY;
    for window in windows {
        let (left, width) = (x(window.begin), (x(window.healed) - x(window.begin)).max(1.0));
        let label = if left - labelled < LABEL { "" } else { window.fault.as_str() };
        labelled = if label.is_empty() { labelled } else { left };
        add(format!(
            "<rect x='{left:.1}' y='16' width='{width:.1}' height='{:.1}' fill='#fbeed5'><title>{} {:.1}–{:.1} s</title></rect>\
             <text x='{left:.1}' y='12' transform='rotate(-30 {left:.1} 12)' fill='#945'>{label}</text>\n",
            height - 20.0,
            window.fault,
            seconds(window.begin),
            seconds(window.healed)
        ));
    }
    for node in 0..=nodes {
        let y = 20.0 + LANE * node as f64;
        let name = if node == nodes { "network".to_owned() } else { format!("node {}", node + 1) };
        add(format!(
            "<text x='4' y='{:.1}'>{name}</text><line x1='{LEFT}' x2='{width:.0}' y1='{:.1}' y2='{:.1}' stroke='#7a7'/>\n",
            y + 14.0,
            y + 10.0,
            y + 10.0
        ));
    }
    for mark in marks {
        let y = 20.0 + LANE * mark.node.unwrap_or(nodes) as f64;
        let end = mark.end.unwrap_or(ends);
        let width = (x(end) - x(mark.begin)).max(2.0);
        add(format!(
            "<rect x='{:.1}' y='{y:.1}' width='{width:.1}' height='20' fill='{}' rx='3'><title>{} {:.1}–{:.1} s</title></rect>\
             <text x='{:.1}' y='{:.1}' fill='#fff' font-size='10'>{}</text>\n",
            x(mark.begin),
            colour(&mark.what),
            escape(&mark.what),
            seconds(mark.begin),
            seconds(end),
            x(mark.begin) + 3.0,
            y + 14.0,
            if width > 50.0 { escape(&mark.what) } else { String::new() }
        ));
    }
    add(rates(records, ends, rate_top, &x));
    add(latencies(records, dots_top, &x));
    add(memory(usage, nodes, memory_top, &x));
    let step = [1, 2, 5].into_iter().find(|step| seconds(ends) / f64::from(*step) <= 25.0).unwrap_or(10);
    for second in (0..=seconds(ends) as u64).step_by(step as usize) {
        add(format!("<text x='{:.1}' y='{:.1}' fill='#555'>{second} s</text>\n", x(second * 1_000_000), height - 4.0));
    }
    svg.push_str("</g></svg>\n");
    svg
}

/// Requests a second, stacked by outcome.
fn rates(records: &[Record], ends: Micros, top: f64, x: &impl Fn(Micros) -> f64) -> String {
    let mut bins = vec![[0_u32; 3]; (ends / BIN + 1) as usize];
    for record in records {
        let kind = match record.outcome {
            Outcome::Ok(_) => 0,
            Outcome::Failed(_) => 1,
            Outcome::Unknown(_) => 2,
        };
        if let Some(bin) = bins.get_mut((record.done / BIN) as usize) {
            bin[kind] += 1;
        }
    }
    let most = bins.iter().map(|bin| bin.iter().sum::<u32>()).max().unwrap_or(1).max(1);
    let per_second = f64::from(most) * 1e6 / BIN as f64;
    let mut svg = format!(
        "<text x='4' y='{:.1}'>requests/s</text><text x='4' y='{:.1}' fill='#777'>top: {per_second:.0}</text>\n",
        top + 14.0,
        top + 28.0
    );
    for (number, bin) in bins.iter().enumerate() {
        let at = number as Micros * BIN;
        let mut base = top + RATE;
        for (count, fill) in bin.iter().zip(["#4a8", "#c93", "#c44"]) {
            let height = RATE * f64::from(*count) / f64::from(most);
            base -= height;
            // Writing to a string cannot fail.
            let _ok = writeln!(
                svg,
                "<rect x='{:.1}' y='{base:.1}' width='{:.2}' height='{height:.1}' fill='{fill}'/>",
                x(at),
                x(at + BIN) - x(at)
            )
            .is_ok();
        }
    }
    svg
}

fn latencies(records: &[Record], top: f64, x: &impl Fn(Micros) -> f64) -> String {
    let mut svg = format!(
        "<text x='4' y='{:.1}'>latency</text><text x='4' y='{:.1}' fill='#777'>top: {:.0} s</text>\n",
        top + 14.0,
        top + 28.0,
        LATENCY_MAX / 1e6
    );
    let every = records.len() / DOTS_MAX + 1;
    for record in records.iter().step_by(every) {
        let latency = (record.done - record.call) as f64;
        let y = top + DOTS * (1.0 - (latency / LATENCY_MAX).sqrt().min(1.0));
        let fill = match record.outcome {
            Outcome::Ok(_) => "#4a8",
            Outcome::Failed(_) => "#c93",
            Outcome::Unknown(_) => "#c44",
        };
        let _ok = writeln!(svg, "<circle cx='{:.1}' cy='{y:.1}' r='1.3' fill='{fill}'/>", x(record.call)).is_ok();
    }
    svg
}

fn memory(usage: &Usage, nodes: usize, top: f64, x: &impl Fn(Micros) -> f64) -> String {
    let most =
        usage.samples.iter().flat_map(|(_, nodes)| nodes).map(|taken| taken.resident_bytes).max().unwrap_or(1).max(1);
    let mut svg = format!(
        "<text x='4' y='{:.1}'>memory</text><text x='4' y='{:.1}' fill='#777'>top: {} MiB</text>\n",
        top + 14.0,
        top + 28.0,
        most >> 20
    );
    for node in 0..nodes {
        let points: Vec<String> = usage
            .samples
            .iter()
            .map(|(at, samples)| {
                format!("{:.1},{:.1}", x(*at), top + 60.0 * (1.0 - samples[node].resident_bytes as f64 / most as f64))
            })
            .collect();
        let _ok =
            writeln!(svg, "<polyline points='{}' fill='none' stroke='hsl({},60%,40%)'/>", points.join(" "), node * 70)
                .is_ok();
    }
    svg
}

fn colour(what: &str) -> &'static str {
    match what {
        "down" | "no power" | "stopped" | "wiped" => "#a33",
        "paused" => "#66a",
        _ if what.starts_with("disk") || what.starts_with("read-only") => "#963",
        _ if what.starts_with("bit") => "#737",
        _ => "#557",
    }
}

/// The run as an HTML page: the verdict by `all` findings, the picture, and the report's text.
pub(crate) fn page(title: &str, picture: &str, all: &[Findings], text: &str) -> String {
    let verdict = if all.iter().all(|findings| findings.count == 0) { "PASS" } else { "FAIL" };
    format!(
        "<!doctype html><meta charset='utf-8'><title>{verdict}: {title}</title>\
         <body style='font-family:sans-serif;margin:1em'><h2>{verdict}</h2><code>{title}</code>\n\
         <div style='overflow-x:auto'>{picture}</div>\
         <p>Green: answered. Yellow: refused. Red: outcome unknown. Latency is drawn by its square root.</p>\
         <pre>{}</pre></body>\n",
        escape(text),
        title = escape(title),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}
