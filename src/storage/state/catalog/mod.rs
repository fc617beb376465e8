//! The catalog in the state: its rows, their secondary indexes, and the query indexes.
//!
//! Owns what is kept up with every write of a row. Knows no rule about when something may be written. Invariant: the secondary
//! indexes say what the live rows say, at every applied index.

mod reads;

pub use reads::CatalogReader;
