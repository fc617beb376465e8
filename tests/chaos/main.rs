//! Breaks a cluster of real processes on purpose, and judges whether anything was lost. Run it by
//! `scripts/chaos`.
//!
//! ```text
//! work ──► client ──► nodes ◄── fault (by rig)        history, watchers ──► check ──► report
//!                       ▲
//!                     enemy (a process of its own)
//! ```
//!
//! `rig` owns processes, disks and networks; `fault` breaks them; `enemy` attacks them; `work` has
//! the clients; `history` keeps their answers; `check` judges them. Nothing here is part of the
//! server. A run uses the server's public API only; `raft_log` reads the files of ended nodes with
//! the server's code.

mod args;
mod check;
mod client;
mod commit;
mod enemy;
mod fault;
mod finish;
mod hashes;
mod history;
mod login;
mod raft_log;
mod report;
mod resource;
mod retry_budget;
mod rig;
mod rights;
mod run;
mod siege;
mod timeline;
mod work;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if words.get(1).is_some_and(|word| word == "enemy") {
        words.remove(1);
        return runtime.block_on(enemy::run(enemy::EnemyArgs::parse_from(words)));
    }
    let args = args::Args::parse();
    if args.list() {
        args::print_list();
        return ExitCode::SUCCESS;
    }
    // From here on a signal is remembered until it is polled, so that no half-made resource stays
    // behind.
    let entered = runtime.enter();
    let signals = match run::Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    drop(entered);
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    if args.check() {
        for (name, why) in &plan.skipped {
            println!("{name}: {why}");
        }
        if plan.faults.is_empty() {
            println!("none of the faults can run here");
            return ExitCode::from(2);
        }
        println!("{} faults can run here", plan.faults.len());
        return ExitCode::SUCCESS;
    }
    match runtime.block_on(run::run(&plan, signals)) {
        Ok(verdict) => {
            println!("verdict: {verdict}");
            if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            println!("verdict: FAIL: the run could not be made: {error:#}");
            ExitCode::FAILURE
        }
    }
}
