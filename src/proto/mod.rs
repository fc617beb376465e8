//! Formats on disks and wires: the generated code of the protos, and the bytes of commands and
//! records.
//!
//! [`pb`] is generated; [`codec`] turns the types of the store into bytes and back.

pub mod codec;
pub mod pb;
