//! Authentication of the cluster: adds the user root and enables it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;
use rand::Rng;
use tonic::Status;

use super::{CALL_TIMEOUT, CLUSTER_TIMEOUT, POLL, Rig};
use crate::login::{Line, Login, ROOT};
use crate::retry_budget::RetryBudget;

/// Name of the file in a run's folder with the password, which root and all other users share. With
/// it the data can be examined after the run.
const PASSWORD_FILE: &str = "password";
const PASSWORD_LETTERS: usize = 24;

/// Makes a random password, and writes it to [`PASSWORD_FILE`] in the run's folder.
pub(super) fn new_password(dir: &Path) -> anyhow::Result<String> {
    let mut random = rand::rng();
    let password: String = (0..PASSWORD_LETTERS).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect();
    let path = dir.join(PASSWORD_FILE);
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    writeln!(file, "{password}")?;
    Ok(password)
}

impl Rig {
    /// Adds the user root and enables authentication; does nothing if the targets have no user.
    /// From then on the requests of every target are root's.
    pub(crate) async fn enable_auth(&self) -> anyhow::Result<()> {
        let Some(password) = self.nodes[0].target.login().map(Login::password) else { return Ok(()) };
        let (name, password) = (ROOT.to_owned(), password.to_owned());
        let add = pb::AuthUserAddRequest { name: name.clone(), password, ..Default::default() };
        self.until_done(async |mut auth| auth.user_add(add.clone()).await.map(drop)).await?;
        let grant = pb::AuthUserGrantRoleRequest { user: name.clone(), role: name };
        self.until_done(async |mut auth| auth.user_grant_role(grant.clone()).await.map(drop)).await?;
        self.until_done(async |mut auth| auth.auth_enable(pb::AuthEnableRequest {}).await.map(drop)).await?;
        // After this, every node has applied the change.
        self.wait_all_serving().await
    }

    /// Repeats a change until it succeeds, or the answer says that it was made before. Fails after
    /// [`CLUSTER_TIMEOUT`].
    async fn until_done(&self, change: impl AsyncFn(AuthClient<Line>) -> Result<(), Status>) -> anyhow::Result<()> {
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        loop {
            let asked = async {
                let auth = self.nodes[0].target.auth().await.map_err(Status::unavailable)?;
                change(auth).await
            };
            let asked = tokio::time::timeout(CALL_TIMEOUT, asked).await;
            match asked.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))) {
                Ok(()) => return Ok(()),
                // An earlier attempt succeeded, and its answer was lost.
                Err(status) if status.message().contains("already exists") => return Ok(()),
                Err(status) if budget.is_spent() => {
                    return Err(anyhow::Error::new(status).context("authentication cannot be turned on"));
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }
}
