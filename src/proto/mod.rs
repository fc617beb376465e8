//! Formats on disks and wires: the generated code of the protos, and the bytes of commands and
//! records.
//!
//! [`pb`] is generated code; [`codec`] encodes and decodes the types of the store.

pub mod codec;
pub mod pb;

#[cfg(test)]
mod page_tests;
