//! The `headwater` program.

use std::process::ExitCode;

use headwater::types::Supported;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Version, commit and profile, as `headwater --version` prints them.
#[cfg(not(feature = "next-version"))]
const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HEADWATER_BUILD"), ")");
/// The next version, as tests of upgrades play it.
#[cfg(feature = "next-version")]
const PROGRAM: &str = concat!("0.5.0 (played, ", env!("HEADWATER_BUILD"), ")");

fn main() -> ExitCode {
    #[cfg(not(feature = "next-version"))]
    let supported = Supported::RELEASE;
    #[cfg(feature = "next-version")]
    let supported = Supported::NEXT;
    headwater::cli::main(PROGRAM, supported)
}
