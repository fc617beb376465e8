//! The live keys of intervals that were scanned lately, in key order and with their values: a range
//! over them reads nothing from disk.
//!
//! Owns the cache ([`RangeCache`]), its unit ([`Segment`]) and the scan that uses and fills it
//! ([`RangeScan`]). Knows no rules of a range. Only the newest versions of the table of keys are
//! cached.
//!
//! Invariant: while a segment is in the cache, it equals the newest state of its interval that is
//! committed or about to be. The writer removes the segments of the keys that it writes *before*
//! its commit becomes visible. A scan adds a segment only if no key of its interval was written
//! since the scan's view. So a view may use a cached segment exactly if the segment is not newer
//! than the view.

mod cache;
mod load;
mod scan;
mod segment;

pub(super) use cache::RangeCache;
pub use cache::RangeCacheMetrics;
pub(super) use load::pairs;
pub(super) use scan::RangeScan;
pub(super) use segment::Segment;
