//! Benchmarks of the layers, one by one: `cargo bench-layers -- FILTER`.

mod apply;
mod bed;
mod keys;
mod log_writer;
mod publish;
mod ranges;
mod rights;

// The allocator of the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

criterion::criterion_main!(apply::all, keys::all, log_writer::benches, publish::all, ranges::all, rights::all);
