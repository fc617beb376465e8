//! Disk of a node: a plain folder, or a file system of its own in a file, which can lose power,
//! fill up, fail and freeze (spec: reliability §2.4).
//!
//! Power is cut by ext4's own shutdown request without flushing the journal: data without fsync is
//! lost, as in a power loss of a disk that honours fsync.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use super::tool;
use crate::retry_budget::RetryBudget;

/// Longest wait until no other process uses a disk that is to be unmounted.
const BUSY_MAX: Duration = Duration::from_secs(10);
const BUSY_POLL: Duration = Duration::from_millis(50);
/// Size of a node's file system.
const VOLUME_BYTES: u64 = 1 << 30;
/// EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, by way of Python: this crate has no unsafe
/// code.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
    folder = os.open(sys.argv[1], os.O_RDONLY)\n\
    fcntl.ioctl(folder, 0x8004587d, struct.pack('I', 2))\n";

/// A node's disk.
pub(crate) struct Disk {
    /// The mount point, or the plain folder.
    mount: PathBuf,
    /// The file that holds the file system; `None` for a plain folder.
    image: Option<PathBuf>,
}

impl Disk {
    /// A plain folder below `home`. It cannot lose power, fill up, fail or freeze.
    pub(crate) fn folder(home: &Path) -> anyhow::Result<Self> {
        let mount = home.join("disk");
        std::fs::create_dir_all(&mount).context("a node's folder")?;
        Ok(Self { mount, image: None })
    }

    /// Makes a file system in a file below `home`, and mounts it.
    pub(crate) async fn volume(home: &Path) -> anyhow::Result<Self> {
        let disk = Self { mount: home.join("disk"), image: Some(home.join("disk.img")) };
        std::fs::create_dir_all(&disk.mount).context("a mount point")?;
        let image = disk.image()?;
        std::fs::File::create(image)?.set_len(VOLUME_BYTES)?;
        tool::run("mkfs.ext4", &["-q", "-F", text(image)?]).await?;
        disk.mount().await?;
        Ok(disk)
    }

    /// The node's data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.mount.join("data")
    }

    /// Whether the disk is a file system of its own.
    pub(crate) fn is_volume(&self) -> bool {
        self.image.is_some()
    }

    fn image(&self) -> anyhow::Result<&Path> {
        self.image.as_deref().context("this fault needs disks that are volumes")
    }

    pub(crate) async fn mount(&self) -> anyhow::Result<()> {
        let options = "loop,errors=remount-ro";
        tool::run("mount", &["-t", "ext4", "-o", options, text(self.image()?)?, text(&self.mount)?]).await?;
        Ok(())
    }

    /// Unmounts the disk. Tries again while it is busy, for at most [`BUSY_MAX`]: another reader,
    /// such as a measurement of its size, ends soon.
    pub(crate) async fn unmount(&self) -> anyhow::Result<()> {
        let mut budget = RetryBudget::new(BUSY_MAX);
        loop {
            match tool::run("umount", &[text(&self.mount)?]).await {
                Err(error) if error.to_string().contains("busy") && !budget.is_spent() => {
                    tokio::time::sleep(BUSY_POLL).await;
                }
                done => return done.map(drop),
            }
        }
    }

    /// Cuts the power: all data that was not fsynced is lost, and every access fails until
    /// [`Self::bring_back`].
    pub(crate) async fn cut_power(&self) -> anyhow::Result<()> {
        self.image()?;
        tool::run("python3", &["-c", SHUTDOWN, text(&self.mount)?]).await?;
        Ok(())
    }

    /// Writes all dirty pages to the disk.
    pub(crate) async fn sync(&self) -> anyhow::Result<()> {
        tool::run("sync", &["-f", text(&self.mount)?]).await?;
        Ok(())
    }

    /// Unmounts and mounts a disk again after its power was cut. No process may use it.
    pub(crate) async fn bring_back(&self) -> anyhow::Result<()> {
        self.unmount().await?;
        self.mount().await
    }

    /// Triggers an error in the file system: it is read-only until [`Self::repair`].
    pub(crate) async fn fail(&self) -> anyhow::Result<()> {
        self.image()?;
        let device = tool::run("findmnt", &["-n", "-o", "SOURCE", text(&self.mount)?]).await?;
        let name = device.trim().trim_start_matches("/dev/").to_owned();
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").context("trigger_fs_error")
    }

    /// Unmounts the file system, repairs it after [`Self::fail`], and mounts it again.
    pub(crate) async fn repair(&self) -> anyhow::Result<()> {
        self.unmount().await?;
        let path = tool::find("e2fsck").context("e2fsck is not installed")?;
        // 1 and 2 mean that something was corrected.
        let done = tokio::process::Command::new(path).args(["-p", "-f", text(self.image()?)?]).output().await?;
        if done.status.code().is_none_or(|code| code > 2) {
            bail!("e2fsck: {}", String::from_utf8_lossy(&done.stdout));
        }
        self.mount().await
    }

    /// Stops all writing to the disk: writers wait until [`Self::thaw`].
    pub(crate) async fn freeze(&self) -> anyhow::Result<()> {
        self.image()?;
        tool::run("fsfreeze", &["-f", text(&self.mount)?]).await.map(|_| ())
    }

    pub(crate) async fn thaw(&self) -> anyhow::Result<()> {
        tool::run("fsfreeze", &["-u", text(&self.mount)?]).await.map(|_| ())
    }

    /// Fills all free space with ballast files, until [`Self::free`]. An error if a write still
    /// succeeds.
    pub(crate) async fn fill(&self) -> anyhow::Result<()> {
        self.image()?;
        let ballast = self.mount.join("ballast");
        let free = tool::run("stat", &["-f", "-c", "%a %S", text(&self.mount)?]).await?;
        let mut numbers = free.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (Some(blocks), Some(size)) = (numbers.next(), numbers.next()) else { bail!("stat printed {free:?}") };
        // The last blocks may have been taken meanwhile, so that the first size does not fit.
        for share in [blocks, blocks * 9 / 10] {
            let bytes = (share * size).to_string();
            if tool::run("fallocate", &["-l", &bytes, text(&ballast)?]).await.is_ok() {
                break;
            }
        }
        // Root may use the reserved blocks, too.
        drop(tool::run("dd", &["if=/dev/zero", &format!("of={}2", ballast.display()), "bs=1M"]).await);
        // A write that still succeeds means that the disk is not full.
        let probe = self.mount.join("ballast3");
        if tool::run("dd", &["if=/dev/zero", &format!("of={}", probe.display()), "bs=1M", "count=1"]).await.is_ok() {
            bail!("{} takes writes although it was filled", self.mount.display());
        }
        Ok(())
    }

    /// Removes the ballast files of [`Self::fill`].
    pub(crate) fn free(&self) -> anyhow::Result<()> {
        for name in ["ballast", "ballast2", "ballast3"] {
            match std::fs::remove_file(self.mount.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the node's data directory. An error if there is none.
    pub(crate) fn wipe(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.data()).context("wiping a data directory")
    }

    /// Unmounts the disk; if that fails, lazily (`umount -l`). Errors are ignored.
    async fn unmount_at_last(&self) {
        // It may not be mounted, or may be in use.
        if self.unmount().await.is_err()
            && let Ok(mount) = text(&self.mount)
        {
            drop(tool::run("umount", &["-l", mount]).await);
        }
    }

    /// Unmounts a volume. Unless `keep_data`, also removes the content of the disk. The node must
    /// have ended. Errors are printed.
    pub(crate) async fn remove(&self, keep_data: bool) {
        let gone = match &self.image {
            Some(image) => {
                self.unmount_at_last().await;
                if keep_data { Ok(()) } else { std::fs::remove_file(image) }
            }
            None if keep_data || !self.data().exists() => Ok(()),
            None => std::fs::remove_dir_all(self.data()),
        };
        if let Err(error) = gone {
            eprintln!("{}: {error}", self.mount.display());
        }
    }
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the path is no text")
}
