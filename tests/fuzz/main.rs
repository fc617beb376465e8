//! Sends hostile input to a cluster of real processes, and judges whether the cluster still works.
//! Run it by `scripts/fuzz`.
//!
//! ```text
//! dice ──► target (by wire) ──► rig: three nodes ──► oracle ──► report
//! ```
//!
//! `target` makes the input of one kind from a seed, with the encodings of `wire`; `rig` owns the
//! processes; `oracle` judges them during the attack and after it. Nothing here is part of the
//! server. Only the code that is generated from its protos is used.

mod args;
mod dice;
mod mutate;
mod oracle;
mod report;
mod rig;
mod run;
mod target;
mod wire;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    if args.list() {
        args::print_list();
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let verdict = match runtime {
        Ok(runtime) => runtime.block_on(run::run(&args)),
        Err(error) => Err(error.into()),
    };
    match verdict {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
