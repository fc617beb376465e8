//! `headwater serve`: one flag per setting, generated from the table of settings.

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

use super::error::CliError;
use headwater_server::config::{Config, SETTINGS, Setting, Sources};
use headwater_types::MemberProgram;

/// Arguments of `serve`: the file of `--config`, `--check`, and the settings given by flags, each
/// as its key and the text of its value.
#[derive(Clone, Debug, Default)]
pub(super) struct ServeArgs {
    file: Option<PathBuf>,
    check: bool,
    flags: Vec<(&'static str, String)>,
}

impl clap::Args for ServeArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let check = Arg::new("check")
            .long("check")
            .action(ArgAction::SetTrue)
            .help("Check the configuration, print it as a TOML file with every setting, and stop");
        command
            .about("Run a node")
            .long_about(
                "Run a node.\n\nWithout any setting: a cluster of one, its data in ./headwater-data, clients on \
                 127.0.0.1:2379.\nEvery setting has a flag, a key in the TOML file and a variable: --raft-heartbeat is \
                 heartbeat\nunder [raft] in the file, and HEADWATER_RAFT_HEARTBEAT.",
            )
            .arg(config_file_arg())
            .arg(check)
            .args(SETTINGS.iter().map(setting_arg))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>("config").cloned();
        self.check = matches.get_flag("check");
        self.flags = given_settings(SETTINGS.iter(), matches);
        Ok(())
    }
}

/// `--config`.
pub(super) fn config_file_arg() -> Arg {
    Arg::new("config")
        .long("config")
        .env("HEADWATER_CONFIG")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("TOML file with settings; flags and environment go before it")
}

/// The flag of a setting.
pub(super) fn setting_arg(setting: &'static Setting) -> Arg {
    // Flags live as long as the process; clap wants them 'static.
    let flag: &'static str = setting.flag().leak();
    let arg = Arg::new(setting.key)
        .long(flag.trim_start_matches('-'))
        .value_name(setting.form)
        .help(format!("{} [default: {}]", setting.help, setting.default));
    if setting.is_switch() { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

/// The settings that were given by flags, each as its key and the text of its value.
pub(super) fn given_settings(
    settings: impl Iterator<Item = &'static Setting>,
    matches: &ArgMatches,
) -> Vec<(&'static str, String)> {
    settings.filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone()))).collect()
}

/// The variables of this process, as far as they are text.
pub(super) fn environment() -> Vec<(String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// Reads the configuration and runs a node until it is told to stop. With `--check`, prints the
/// configuration instead.
pub(super) fn run(args: ServeArgs, program: MemberProgram) -> Result<(), CliError> {
    let sources = Sources { file: args.file, environment: environment(), flags: args.flags };
    let config = Config::load(&sources).map_err(|error| CliError::Usage(error.to_string()))?;
    if args.check {
        return Ok(write!(std::io::stdout().lock(), "{}", config.to_toml())?);
    }
    headwater_server::run(config, program).map_err(CliError::Other)
}
