//! Damaged backup files, with and without a correct checksum: `snapshot restore` must refuse them
//! or make a data directory that can be read, and must write nowhere else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage, Value};
use sha2::{Digest, Sha256};

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::{Rig, run_program};
use crate::wire::message;

/// Longest time of one run of the program.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
const MAGIC: &[u8] = b"HWBACKUP";
const PREFIX_BYTES: usize = 12;
const BLOCK_BYTES: usize = 512;
const DIGEST_BYTES: usize = 32;
/// File names for a hostile description: names that lead out of the folder, are no legal names, or
/// have a meaning for RocksDB, and a harmless one.
const NAMES: &[&str] =
    &["../planted", "/tmp/planted", "a/b", "", ".", "..", "CURRENT", "LOCK", "OPTIONS-000001", "a\0b", "x"];

/// An undamaged backup, whole and in parts.
pub(super) struct Backups {
    rig: Arc<Rig>,
    sound: Vec<u8>,
    format: u8,
    info: DynamicMessage,
    /// Content of each file in the backup, without padding.
    files: Vec<Vec<u8>>,
    runs: AtomicU64,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Backups> {
    let path = rig.dir.join("backup.db");
    let node = rig.node(0).client.to_string();
    let arguments = ["snapshot".to_owned(), "save".into(), path.display().to_string(), "--endpoints".into(), node];
    run_program(&rig.binary, &arguments, RUN_TIMEOUT).await?.succeeded()?;
    let sound = std::fs::read(&path)?;
    let length = u32::from_be_bytes(sound[MAGIC.len()..PREFIX_BYTES].try_into()?) as usize;
    let (format, encoded) = (sound[PREFIX_BYTES], &sound[PREFIX_BYTES + 1..PREFIX_BYTES + length]);
    let info = DynamicMessage::decode(description()?, encoded)?;
    let mut files = Vec::new();
    let mut at = (PREFIX_BYTES + length).next_multiple_of(BLOCK_BYTES);
    for size in sizes(&info) {
        files.push(sound[at..at + size].to_vec());
        at += size;
    }
    Ok(Backups { rig, sound, format, info, files, runs: AtomicU64::new(0) })
}

/// The message type of the description at the start of a backup. It is not in a public proto.
fn description() -> anyhow::Result<MessageDescriptor> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let pool = DescriptorPool::from_file_descriptor_set(protox::compile(["internal/backup.proto"], [root])?)?;
    pool.get_message_by_name("headwater.internal.Backup").ok_or_else(|| anyhow::anyhow!("no type of backups"))
}

fn sizes(info: &DynamicMessage) -> Vec<usize> {
    let files = info.get_field_by_name("files");
    let list = files.as_ref().and_then(|files| files.as_list()).unwrap_or_default();
    list.iter()
        .filter_map(|file| file.as_message()?.get_field_by_name("size")?.as_u64())
        .map(|size| size as usize)
        .collect()
}

impl Attack for Backups {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let bytes = match dice.below(5) {
                0 => {
                    let mut bytes = self.sound.clone();
                    mutate::bytes(&mut bytes, &mut dice);
                    bytes
                }
                1 => self.with_description(&mut dice),
                _ => self.with_content(&mut dice),
            };
            let run = self.runs.fetch_add(1, Ordering::Relaxed);
            let folder = self.rig.dir.join(format!("restore{run}"));
            std::fs::create_dir_all(&folder)?;
            let outcome = self.restore(&folder, &bytes).await?;
            // The folder of a finding stays, as evidence.
            if outcome.finding.is_none() {
                std::fs::remove_dir_all(&folder)?;
            }
            Ok(outcome)
        })
    }
}

impl Backups {
    /// A backup with the same files, a changed description, and a correct checksum.
    fn with_description(&self, dice: &mut Dice) -> Vec<u8> {
        let mut info = self.info.clone();
        if dice.once_in(3) {
            info = message::message(info.descriptor().parent_pool(), &info.descriptor(), dice);
        } else if let Some(Value::List(files)) = info.get_field_by_name_mut("files")
            && !files.is_empty()
        {
            let at = dice.below(files.len());
            if let Value::Message(file) = &mut files[at] {
                match dice.once_in(2) {
                    true => file.set_field_by_name("name", Value::String((*dice.pick(NAMES)).to_owned())),
                    false => file.set_field_by_name("size", Value::U64(dice.number())),
                }
            }
        }
        let mut encoded = info.encode_to_vec();
        if dice.once_in(3) {
            mutate::bytes(&mut encoded, dice);
        }
        seal(self.format, &encoded, &self.files)
    }

    /// A backup with damaged files, a description with their sizes, and a correct checksum.
    fn with_content(&self, dice: &mut Dice) -> Vec<u8> {
        let (mut info, mut files) = (self.info.clone(), self.files.clone());
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(files.len());
            match dice.below(8) {
                0 => files[at].clear(),
                1 => {
                    let other = dice.below(files.len());
                    files[at] = files[other].clone();
                }
                _ => mutate::bytes(&mut files[at], dice),
            }
        }
        if let Some(Value::List(described)) = info.get_field_by_name_mut("files") {
            for (file, content) in described.iter_mut().zip(&files) {
                if let Value::Message(file) = file {
                    file.set_field_by_name("size", Value::U64(content.len() as u64));
                }
            }
        }
        seal(self.format, &info.encode_to_vec(), &files)
    }

    async fn restore(&self, folder: &Path, bytes: &[u8]) -> anyhow::Result<Outcome> {
        let (file, data) = (folder.join("backup.db"), folder.join("data"));
        std::fs::write(&file, bytes)?;
        let status = ["snapshot", "status"].map(str::to_owned).into_iter().chain([file.display().to_string()]);
        if let Some(defect) = self.run(status.collect()).await?.1 {
            return Ok(Outcome::finding("defect", format!("snapshot status {defect}; see {}", folder.display())));
        }
        let mut arguments = vec!["snapshot".to_owned(), "restore".into(), file.display().to_string()];
        arguments.extend([
            "--data-dir".to_owned(),
            data.display().to_string(),
            "--cluster-token".into(),
            "restored".into(),
        ]);
        let (is_restored, defect) = self.run(arguments).await?;
        if let Some(defect) = defect {
            return Ok(Outcome::finding("defect", format!("snapshot restore {defect}; see {}", folder.display())));
        }
        let expected: BTreeSet<PathBuf> =
            if is_restored { vec![file, data.clone()] } else { vec![file] }.into_iter().collect();
        let found: BTreeSet<PathBuf> =
            std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        if found != expected {
            return Ok(Outcome::finding("planted", format!("restore leaves {found:?}")));
        }
        if !is_restored {
            return Ok(Outcome::of("refused"));
        }
        // Reads the whole restored state. Damage that only this notices is no finding: the command
        // reports it, as a node would.
        let again = folder.join("again.db");
        let mut arguments = vec!["snapshot".to_owned(), "save".into(), again.display().to_string()];
        arguments.extend(["--from".to_owned(), data.display().to_string()]);
        let (is_read, defect) = self.run(arguments).await?;
        Ok(match defect {
            Some(defect) => {
                Outcome::finding("defect", format!("snapshot save --from {defect}; see {}", folder.display()))
            }
            None if is_read => Outcome::of("restored"),
            None => Outcome::of("restored, damaged"),
        })
    }

    async fn run(&self, arguments: Vec<String>) -> anyhow::Result<(bool, Option<String>)> {
        let ran = run_program(&self.rig.binary, &arguments, RUN_TIMEOUT).await?;
        Ok((ran.is_success(), ran.defect()))
    }
}

/// Encodes a backup of these parts: prefix, description, padded files and checksum.
fn seal(format: u8, encoded: &[u8], files: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((encoded.len() as u32 + 1).to_be_bytes());
    bytes.push(format);
    bytes.extend(encoded);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    let body: usize = files.iter().map(Vec::len).sum();
    files.iter().for_each(|file| bytes.extend(file));
    bytes.resize(bytes.len() + body.next_multiple_of(BLOCK_BYTES) - body, 0);
    let digest: [u8; DIGEST_BYTES] = Sha256::digest(&bytes).into();
    bytes.extend(digest);
    bytes
}
