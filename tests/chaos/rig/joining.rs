//! Nodes that join the cluster: each of them gets an invitation of its own.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_proto::pb::headwater_v1::CreateInvitationRequest;
use headwater_proto::pb::headwater_v1::invitations_client::InvitationsClient;
use tonic::Code;

use super::{CALL_TIMEOUT, CLUSTER_TIMEOUT, POLL, Rig};
use crate::retry_budget::RetryBudget;

/// Time to live of an invitation.
const TTL_SECONDS: u64 = 3600;

impl Rig {
    /// Removes an ended node's data. If its arguments make it join at its next start, it gets a new
    /// invitation.
    pub(crate) async fn wipe(&self, number: usize) -> anyhow::Result<()> {
        self.disks[number].wipe()?;
        if self.nodes[number].joins() { self.let_join(number).await } else { Ok(()) }
    }

    /// Starts a node that was removed from the cluster and has no data: it joins. Its later starts
    /// have the same arguments.
    pub(crate) async fn launch_joining(&self, number: usize) -> anyhow::Result<()> {
        self.let_join(number).await?;
        self.launch(number)
    }

    /// Makes an invitation, and sets the arguments with which a node joins at its next start
    /// without data.
    async fn let_join(&self, number: usize) -> anyhow::Result<()> {
        let token = self.invite(number).await?;
        let file = token.map(|token| self.write_token(number, &token)).transpose()?;
        let arguments = self.join_arguments(number, file.as_deref());
        self.nodes[number].set_arguments(arguments);
        Ok(())
    }

    /// The token of a new invitation; `None` if the cluster's version has no invitations. Asks the
    /// other nodes in turn until one makes it, as any of them may be down or cut off.
    async fn invite(&self, number: usize) -> anyhow::Result<Option<String>> {
        let request = CreateInvitationRequest {
            name: format!("node {}", number + 1),
            ttl_seconds: TTL_SECONDS,
            uses: Some(1),
            learner: false,
        };
        let mut budget = RetryBudget::new(CLUSTER_TIMEOUT);
        for asked in (0..self.nodes.len()).filter(|asked| *asked != number).cycle() {
            let call = async {
                let channel = self.nodes[asked].target.channel().await.map_err(tonic::Status::unavailable)?;
                InvitationsClient::new(channel).create_invitation(request.clone()).await
            };
            let why = match tokio::time::timeout(CALL_TIMEOUT, call).await {
                Ok(Ok(made)) => return Ok(Some(made.into_inner().token)),
                Ok(Err(status)) if matches!(status.code(), Code::Unimplemented | Code::FailedPrecondition) => {
                    return Ok(None);
                }
                Ok(Err(status)) => status.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            if budget.is_spent() {
                anyhow::bail!("no invitation for {CLUSTER_TIMEOUT:?}: {why}");
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("there is no other node")
    }

    fn write_token(&self, number: usize, token: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(format!("node{}.token", number + 1));
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        writeln!(file, "{token}")?;
        Ok(path)
    }

    /// Arguments of a node that joins the cluster of all other nodes.
    fn join_arguments(&self, number: usize, token_file: Option<&Path>) -> Vec<String> {
        let scheme = self.scheme();
        let others = (0..self.nodes.len()).filter(|other| *other != number);
        let others: Vec<String> = others.map(|other| format!("{scheme}://{}", self.net.client(other))).collect();
        let mut arguments = vec!["serve".to_owned(), "--join".to_owned(), others.join(",")];
        arguments.extend(["--node-name".to_owned(), format!("node{}", number + 1)]);
        arguments.extend(["--advertise-peer".to_owned(), self.peer_url(number)]);
        arguments.extend(["--advertise-client".to_owned(), format!("{scheme}://{}", self.net.client(number))]);
        if let Some(file) = token_file {
            arguments.extend(["--join-token-file".to_owned(), file.display().to_string()]);
        }
        arguments.extend(self.addresses(number, &self.disks[number].data()));
        arguments
    }
}
