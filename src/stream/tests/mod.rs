//! The stream against a plain list of everything that was ever published.

mod bed;
mod crowd;
mod hand_off;
mod lag;
mod property;
mod runs;
mod snapshots;
