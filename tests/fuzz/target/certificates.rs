//! Damaged certificate files. A running node that reads them must keep serving with the last good
//! ones. Commands of `headwater` read them as a client, as an authority, and as a server that
//! starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use rustix::process::Signal;

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::{Node, Rig, run_program};

/// Longest time of one run of the program.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait until a node serves with restored files.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Certificate files of a node's client port.
const OF_NODE: &[&str] = &["client.crt", "client.key", "client-ca.crt", "client.crl"];
/// Certificate files of a client.
const OF_CLIENT: &[&str] = &["client-ca.crt", "ops.crt", "ops.key"];
/// On average one of this many inputs runs a command with a damaged file. The others damage files
/// of a running node.
const RENEWAL_ONCE_IN: usize = 2;

pub(super) struct Certificates {
    rig: Arc<Rig>,
    good: PathBuf,
    scratch: PathBuf,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Certificates> {
    let (good, scratch) = (rig.dir.join("certs"), rig.dir.join("scratch"));
    std::fs::create_dir_all(&scratch)?;
    Ok(Certificates { rig, good, scratch })
}

impl Attack for Certificates {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let dice = &mut dice;
            match dice.below(3 * RENEWAL_ONCE_IN) {
                0 => self.client(dice).await,
                1 => self.authority(dice).await,
                2 => self.check(dice).await,
                _ => self.renewal(dice).await,
            }
        })
    }
}

impl Certificates {
    /// Damages files of a running node and makes it read them. It must not end, and must serve
    /// once the files are restored.
    async fn renewal(&self, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let node = self.rig.node(dice.below(3));
        let names: Vec<&str> = (0..1 + dice.below(3)).map(|_| *dice.pick(OF_NODE)).collect();
        let saved: Vec<(PathBuf, Vec<u8>)> = OF_NODE
            .iter()
            .map(|name| node.certs.join(name))
            .map(|path| std::fs::read(&path).map(|bytes| (path, bytes)))
            .collect::<Result<_, _>>()?;
        let before = renewals(node);
        for name in names {
            damage(&node.certs.join(name), &node.certs.join(name), dice)?;
        }
        node.signal(Signal::HUP)?;
        // Harmless damage (in a comment, at the end of a line) is accepted, and no refusal is
        // logged.
        let give_up = Instant::now() + Duration::from_secs(2);
        while renewals(node) == before && Instant::now() < give_up && node.ended().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (path, bytes) in saved {
            std::fs::write(path, bytes)?;
        }
        if node.ended().is_some() {
            return Ok(Outcome::finding("ended", format!("node {} ends for damaged certificates", node.id)));
        }
        node.signal(Signal::HUP)?;
        Ok(match self.serves_again(node).await {
            Ok(()) => Outcome::of("renewed"),
            Err(error) => Outcome::finding("refuses", format!("after a renewal from damaged files: {error:#}")),
        })
    }

    async fn serves_again(&self, node: &Node) -> anyhow::Result<()> {
        let give_up = Instant::now() + RENEWAL_TIMEOUT;
        loop {
            match self.rig.reach.get(node.client, "/livez").await {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() < give_up => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok((status, body)) => anyhow::bail!("/livez answers {status} {body}"),
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a client command with a damaged file.
    async fn client(&self, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let mut arguments = vec!["get".to_owned(), "k".into(), "--timeout".into(), "2s".into()];
        arguments.extend(["--endpoints".to_owned(), format!("https://{}", self.rig.node(0).client)]);
        let damaged = *dice.pick(OF_CLIENT);
        for (flag, name) in ["--cacert", "--cert", "--key"].iter().zip(OF_CLIENT) {
            let mut path = self.good.join(name);
            if *name == damaged {
                let target = self.scratch.join(name);
                damage(&path, &target, dice)?;
                path = target;
            }
            arguments.extend([(*flag).to_owned(), path.display().to_string()]);
        }
        self.run("a client with damaged certificates", &arguments).await
    }

    /// Runs `headwater certs` on the files of an authority, one of them damaged: it makes a
    /// certificate, and sometimes revokes another one.
    async fn authority(&self, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let dir = self.scratch.join("authority");
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        let names =
            ["peer-ca.crt", "peer-ca.key", "client-ca.crt", "client-ca.key", "peer.crl", "client.crl", "ops.crt"];
        let damaged = *dice.pick(&names);
        for name in names {
            std::fs::copy(self.good.join(name), dir.join(name))?;
        }
        damage(&self.good.join(damaged), &dir.join(damaged), dice)?;
        let folder = dir.display().to_string();
        let mut arguments = vec!["certs".to_owned(), folder, "--client".into(), "other".into()];
        if dice.once_in(2) {
            arguments.extend(["--revoke".to_owned(), dir.join("ops.crt").display().to_string()]);
        }
        self.run("an authority with damaged files", &arguments).await
    }

    /// Starts a server with a damaged file. Its ports are taken, so that it ends in any case.
    async fn check(&self, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let node = self.rig.node(0);
        let mut arguments =
            vec!["serve".to_owned(), "--data-dir".into(), self.scratch.join("data").display().to_string()];
        // These ports are taken: if the damage was harmless, the server ends because of them.
        arguments.extend(["--listen-client".to_owned(), node.client.to_string()]);
        arguments.extend(["--listen-peer".to_owned(), node.peer.to_string()]);
        let damaged = *dice.pick(OF_NODE);
        for (flag, name) in ["--tls-cert", "--tls-key", "--tls-trusted-ca", "--tls-crl"].iter().zip(OF_NODE) {
            let mut path = node.certs.join(name);
            if *name == damaged {
                let target = self.scratch.join(name);
                damage(&path, &target, dice)?;
                path = target;
            }
            arguments.extend([(*flag).to_owned(), path.display().to_string()]);
        }
        arguments.extend(["--tls-client-certs".to_owned(), "require".into()]);
        self.run("a start with damaged certificates", &arguments).await
    }

    async fn run(&self, what: &str, arguments: &[String]) -> anyhow::Result<Outcome> {
        let ran = run_program(&self.rig.binary, arguments, RUN_TIMEOUT).await?;
        let answer = if ran.is_success() { "accepted" } else { "refused" };
        Ok(match ran.defect() {
            Some(defect) => Outcome::finding("defect", format!("{what} {defect}")),
            None => Outcome::of(answer),
        })
    }
}

/// Number of lines about certificates that a node has logged.
fn renewals(node: &Node) -> usize {
    node.log().lines().filter(|line| line.contains("certificate")).count()
}

/// Writes a damaged copy of a PEM file: with damage in its text, or in the bytes that it encodes.
fn damage(from: &Path, to: &Path, dice: &mut Dice) -> anyhow::Result<()> {
    let mut text = std::fs::read(from).with_context(|| from.display().to_string())?;
    if dice.once_in(3) {
        mutate::bytes(&mut text, dice);
    } else {
        text = in_pem(&String::from_utf8_lossy(&text), dice).unwrap_or(text);
    }
    Ok(std::fs::write(to, text)?)
}

fn in_pem(text: &str, dice: &mut Dice) -> Option<Vec<u8>> {
    let (first, rest) = text.split_once('\n')?;
    let (body, last) = rest.rsplit_once("-----END")?;
    let encoded: String = body.split_whitespace().collect();
    let mut der = BASE64_STANDARD.decode(encoded).ok()?;
    mutate::bytes(&mut der, dice);
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    Some(format!("{first}\n{}\n-----END{last}", lines.join("\n")).into_bytes())
}
