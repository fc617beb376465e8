//! Formats on disks and wires: the generated code of the protos, and the bytes of commands and
//! records.
//!
//! [`pb`] is generated code; [`codec`] encodes and decodes the types of the store; [`well_known`]
//! names the messages with a JSON form of their own.

pub mod codec;
pub mod pb;
pub mod well_known;

#[cfg(test)]
mod page_tests;
