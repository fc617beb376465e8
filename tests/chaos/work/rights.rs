//! Users, with rights that are given and taken all the time.
//!
//! Each user has keys of its own, and one administrator, which gives and takes the right to them by
//! every kind of request. Root writes to the keys of all users meanwhile. On each node every user
//! reads, writes and watches its keys, with and without the right.
//!
//! Each time the right is given by a new role. A change of unknown outcome may still take effect:
//! then the role is deleted, so that the late change is refused.

use std::time::Duration;

use headwater_proto::pb::authpb;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::auth_client::AuthClient;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::watch::UNKNOWN_TOKEN;
use super::{AsyncClientStep, Client, Control, Lab, REQUEST_TIMEOUT};
use crate::client::{Target, is_broken, judge, prefix_end, with_deadline};
use crate::history::{Freshness, Outcome, Request};
use crate::login::{Line, Login};
use crate::rights::{Changed, Effect, RightsChange, UserWatch, WatchEnd, prefix_of};

pub(crate) const NAME: &str = "rights";
/// Name of the workload of root's writes.
const WRITER: &str = "rights of root";

const USERS: usize = 3;
const WRITERS: u64 = 3;
const PAUSE: Duration = Duration::from_millis(40);
const WRITERS_PAUSE: Duration = Duration::from_millis(20);
/// Number of keys of each user.
const KEYS: u64 = 4;
/// A key of each user that nobody writes: a watch of it is idle when the right goes.
const QUIET: &str = "quiet";
/// First client number of the administrators: above those of the users' clients.
const ADMINS: u64 = 900;
/// Time for which a user has the right, milliseconds.
const GIVEN: std::ops::Range<u64> = 400..2500;
/// Time without the right, milliseconds: shorter than a watch may take to end.
const TAKEN: std::ops::Range<u64> = 200..1200;
/// Time without the right, milliseconds: longer than a watch may take to end.
const TAKEN_LONG: std::ops::Range<u64> = 4000..6000;
/// Pause before a change is repeated.
const AGAIN: Duration = Duration::from_millis(100);
/// Pause before a watch is opened again, milliseconds.
const WATCH_AGAIN: std::ops::Range<u64> = 50..400;
const CONNECT: Duration = Duration::from_secs(2);

/// Starts the administrators, root's writers, and each user's clients and watches on each node.
/// Without `--auth`, starts root's writers alone.
pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, WRITER, WRITERS, WRITERS_PAUSE, |_| (), Writer);
    // The users have root's password: it is a secret of the run.
    let Some(password) = lab.targets.first().and_then(Target::login).map(|login| login.password().to_owned()) else {
        return;
    };
    for user in 0..USERS {
        let (added, is_added) = watch::channel(false);
        let client = Client::new(lab.clone(), NAME, ADMINS + user as u64);
        let admin = Admin { client, user, password: password.clone(), turns: 0 };
        tasks.spawn(admin.run(added));
        let login = || Some(Login::new(&name_of(user), &password));
        let targets: Vec<Target> = lab.targets.iter().map(|target| target.by(login())).collect();
        for (node, target) in targets.iter().enumerate() {
            let number = (user * lab.targets.len() + node) as u64;
            let client = Client::new(Lab { targets: targets.clone(), ..lab.clone() }, NAME, number);
            let asks = User { client, user, node, root: lab.targets.clone() };
            tasks.spawn(asks.run(is_added.clone()));
            let is_borrowed = lab.control == Some(Control::BorrowedWatch);
            let target = if is_borrowed { lab.targets[node].apart() } else { target.apart() };
            tasks.spawn(watches(lab.clone(), user, target, number, is_added.clone()));
        }
    }
}

fn name_of(user: usize) -> String {
    format!("u{user}")
}

#[derive(Clone)]
struct Writer;

impl AsyncClientStep<()> for Writer {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let prefix = prefix_of(client.below(USERS as u64) as usize);
        let key = format!("{prefix}{}", client.below(KEYS));
        let request = match client.below(8) {
            0 => Request::Delete { key },
            _ => Request::Put { key, value: client.value(), lease: 0 },
        };
        client.ask(request).await;
    }
}

/// A user's requests at one node.
struct User {
    client: Client,
    user: usize,
    node: usize,
    /// By node: the target with root's login.
    root: Vec<Target>,
}

impl User {
    async fn run(mut self, mut is_added: watch::Receiver<bool>) {
        // An error means that the run has ended.
        let _gone = is_added.wait_for(|added| *added).await.is_err();
        let (stop, pause) = (self.client.lab.stop.clone(), PAUSE * self.client.lab.pace);
        while !stop.is_cancelled() {
            self.step().await;
            // The think time of a client, not a wait for a condition.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn step(&mut self) {
        let client = &mut self.client;
        let key = format!("{}{}", prefix_of(self.user), client.below(KEYS));
        let freshness = if client.below(2) == 0 { Freshness::Serializable } else { Freshness::Linearizable };
        let request = match client.below(6) {
            0 => Request::Put { key, value: client.value(), lease: 0 },
            1 | 2 => Request::Read { key: prefix_of(self.user), prefix: true, freshness },
            _ => Request::Read { key, prefix: false, freshness },
        };
        let is_serializable = matches!(request, Request::Read { freshness: Freshness::Serializable, .. });
        if is_serializable && client.lab.control == Some(Control::BorrowedRead) {
            let own = std::mem::replace(&mut client.lab.targets, self.root.clone());
            client.send_to(self.node, request).await;
            client.lab.targets = own;
        } else {
            client.send_to(self.node, request).await;
        }
    }
}

/// One request of an administrator.
enum Ask<'a> {
    AddUser,
    /// Sets the same password again, which ends the user's tokens.
    ChangePassword,
    AddRole(&'a str),
    Permit(&'a str),
    Forbid(&'a str),
    Give(&'a str),
    Take(&'a str),
    DeleteRole(&'a str),
}

/// The administrator of one user.
struct Admin {
    client: Client,
    user: usize,
    password: String,
    /// Number of times that the right was to be given. It is part of the role's name.
    turns: u64,
}

impl Admin {
    async fn run(mut self, added: watch::Sender<bool>) {
        while !self.is_over() && !self.add().await {
            tokio::time::sleep(AGAIN).await;
        }
        added.send_replace(true);
        while !self.is_over() {
            self.turns += 1;
            let role = format!("{}-{}", name_of(self.user), self.turns);
            if self.give(&role).await {
                self.hold(GIVEN).await;
                self.take(&role).await;
            } else {
                self.delete(&role).await;
            }
            let long = self.client.below(3) == 0;
            self.hold(if long { TAKEN_LONG } else { TAKEN }).await;
            self.delete(&role).await;
        }
    }

    fn is_over(&self) -> bool {
        self.client.lab.stop.is_cancelled()
    }

    /// Waits for a random time in this range, milliseconds, or until the run stops.
    async fn hold(&mut self, range: std::ops::Range<u64>) {
        let time = Duration::from_millis(self.client.rng.random_range(range));
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.client.lab.stop.cancelled() => {}
        }
    }

    /// Adds the user, without a right. Returns whether the user certainly exists.
    async fn add(&mut self) -> bool {
        match self.ask(Effect::Takes, Ask::AddUser).await {
            Changed::Done { .. } => true,
            Changed::Failed(why) => why.contains("already exists"),
            Changed::Unknown(_) => false,
        }
    }

    /// Gives the user a new role with the right, by requests in one of two orders. Sometimes sets
    /// the user's password again before. Returns whether the user certainly has the right.
    async fn give(&mut self, role: &str) -> bool {
        let first_the_right = self.client.below(2) == 0;
        let (prepares, gives) = match first_the_right {
            true => (Ask::Permit(role), Ask::Give(role)),
            false => (Ask::Give(role), Ask::Permit(role)),
        };
        let is_done = |changed| matches!(changed, Changed::Done { .. });
        if self.client.below(6) == 0 {
            // A change of the password never changes a right, even if its outcome is unknown.
            self.ask(Effect::Neither, Ask::ChangePassword).await;
        }
        is_done(self.ask(Effect::Neither, Ask::AddRole(role)).await)
            && is_done(self.ask(Effect::Neither, prepares).await)
            && is_done(self.ask(Effect::Gives, gives).await)
    }

    /// Takes the right by one of three requests. When this returns, the right is certainly gone,
    /// unless the run has stopped, or the control `kept-right` has left it.
    async fn take(&mut self, role: &str) {
        let way = match self.client.below(3) {
            0 => Ask::Forbid(role),
            1 => Ask::Take(role),
            _ => Ask::DeleteRole(role),
        };
        if self.client.lab.control == Some(Control::KeptRight) && self.turns.is_multiple_of(2) {
            self.look("nothing, which is a lie").await;
            return;
        }
        if !matches!(self.ask(Effect::Takes, way).await, Changed::Done { .. }) {
            self.delete(role).await;
        }
    }

    /// Repeats the deletion of a role until it is certain that the role does not exist. A late
    /// change of it is refused then.
    async fn delete(&mut self, role: &str) {
        while !self.is_over() {
            match self.ask(Effect::Takes, Ask::DeleteRole(role)).await {
                Changed::Done { .. } => return,
                // It was deleted before, which is part of every later state.
                Changed::Failed(why) if why.contains("role name not found") => {
                    if self.look("a read after the role was gone").await {
                        return;
                    }
                }
                Changed::Failed(_) | Changed::Unknown(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// A linearizable read, recorded as a change that takes the right, at the state that was read.
    /// Returns whether it was answered.
    async fn look(&mut self, words: &str) -> bool {
        let (clock, node) = (self.client.lab.recorder.clock, self.client.node());
        let call = clock.now();
        let read = Request::Read { key: prefix_of(self.user), prefix: false, freshness: Freshness::Linearizable };
        let outcome = match self.client.lab.targets[node].send(&read, REQUEST_TIMEOUT).await {
            Outcome::Ok(answer) => Changed::Done { index: answer.index, revision: answer.revision },
            Outcome::Failed(why) | Outcome::Unknown(why) => Changed::Failed(why),
        };
        let is_done = matches!(outcome, Changed::Done { .. });
        self.keep(Effect::Takes, words.to_owned(), node, call, outcome);
        is_done
    }

    /// Sends one request, and records it.
    async fn ask(&mut self, effect: Effect, ask: Ask<'_>) -> Changed {
        let (clock, node) = (self.client.lab.recorder.clock, self.client.node());
        let (request, call) = (self.words(&ask), clock.now());
        let target = self.client.lab.targets[node].clone();
        let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, target.auth()).await {
            Ok(Ok(auth)) => match tokio::time::timeout(REQUEST_TIMEOUT, self.send(auth, ask)).await {
                Ok(Ok((index, revision))) => Changed::Done { index, revision },
                Ok(Err(status)) => {
                    if is_broken(&status) {
                        target.forget();
                    }
                    match judge(&status) {
                        Outcome::Failed(why) => Changed::Failed(why),
                        Outcome::Ok(_) => unreachable!("invariant: a status is no answer"),
                        Outcome::Unknown(why) => Changed::Unknown(why),
                    }
                }
                Err(_) => Changed::Unknown("no answer in time".to_owned()),
            },
            Ok(Err(why)) => Changed::Failed(why),
            Err(_) => Changed::Failed("no connection in time".to_owned()),
        };
        self.keep(effect, request, node, call, outcome.clone());
        outcome
    }

    fn keep(&self, effect: Effect, request: String, node: usize, call: u64, outcome: Changed) {
        let lab = &self.client.lab;
        let done = lab.recorder.clock.now();
        lab.rights.changed(RightsChange { user: self.user, effect, request, node, call, done, outcome });
    }

    fn words(&self, ask: &Ask<'_>) -> String {
        match ask {
            Ask::AddUser => "add the user".to_owned(),
            Ask::ChangePassword => "the same password again".to_owned(),
            Ask::AddRole(role) => format!("add the role {role}"),
            Ask::Permit(role) => format!("permit the keys to {role}"),
            Ask::Forbid(role) => format!("revoke the keys from {role}"),
            Ask::Give(role) => format!("give {role}"),
            Ask::Take(role) => format!("take {role}"),
            Ask::DeleteRole(role) => format!("delete the role {role}"),
        }
    }

    /// Sends one request; returns the log index and the revision in its answer.
    async fn send(&self, mut auth: AuthClient<Line>, ask: Ask<'_>) -> Result<(u64, i64), Status> {
        let user = name_of(self.user);
        let (key, range_end) = (prefix_of(self.user).into_bytes(), prefix_end(&prefix_of(self.user)));
        macro_rules! send {
            ($method:ident, $message:expr) => {{
                let answer = auth.$method(with_deadline($message, REQUEST_TIMEOUT)).await?;
                let index =
                    answer.metadata().get(crate::client::INDEX).and_then(|text| text.to_str().ok()?.parse().ok());
                let revision = answer.into_inner().header.map(|header| header.revision);
                index.zip(revision).ok_or_else(|| Status::internal("an answer without an index"))
            }};
        }
        match ask {
            Ask::AddUser => {
                let add = pb::AuthUserAddRequest { name: user, password: self.password.clone(), ..Default::default() };
                send!(user_add, add)
            }
            Ask::ChangePassword => {
                let password = self.password.clone();
                let change = pb::AuthUserChangePasswordRequest { name: user, password, ..Default::default() };
                send!(user_change_password, change)
            }
            Ask::AddRole(role) => send!(role_add, pb::AuthRoleAddRequest { name: role.to_owned() }),
            Ask::Permit(role) => {
                let perm_type = authpb::permission::Type::Readwrite.into();
                let perm = authpb::Permission { perm_type, key: key.into(), range_end: range_end.into() };
                let permit = pb::AuthRoleGrantPermissionRequest { name: role.to_owned(), perm: Some(perm) };
                send!(role_grant_permission, permit)
            }
            Ask::Forbid(role) => {
                let (key, range_end) = (key.into(), range_end.into());
                let forbid = pb::AuthRoleRevokePermissionRequest { role: role.to_owned(), key, range_end };
                send!(role_revoke_permission, forbid)
            }
            Ask::Give(role) => send!(user_grant_role, pb::AuthUserGrantRoleRequest { user, role: role.to_owned() }),
            Ask::Take(role) => {
                send!(user_revoke_role, pb::AuthUserRevokeRoleRequest { name: user, role: role.to_owned() })
            }
            Ask::DeleteRole(role) => send!(role_delete, pb::AuthRoleDeleteRequest { role: role.to_owned() }),
        }
    }
}

/// Opens one watch of a user's keys after the other.
async fn watches(lab: Lab, user: usize, target: Target, number: u64, mut is_added: watch::Receiver<bool>) {
    // An error means that the run has ended.
    let _gone = is_added.wait_for(|added| *added).await.is_err();
    let mut rng = StdRng::seed_from_u64(lab.seed.wrapping_mul(41).wrapping_add(number));
    let mut next = 0;
    while !lab.stop.is_cancelled() {
        // From now on (0), or from the revision after the last event: once the right is there
        // again, that includes events of periods without it.
        let from = if rng.random_range(0..2) == 0 { 0 } else { next };
        let is_idle = rng.random_range(0..3) == 0;
        let (node, call) = (target.node, lab.recorder.clock.now());
        let record = UserWatch { user, node, call, opened: None, events: Vec::new(), end: None };
        let watch = lab.rights.begin(record);
        let end = tokio::select! {
            end = one_watch(&lab, &target, wish(user, from, is_idle), watch, &mut next) => end,
            // The watch is open at the end of the run, so its record has no end.
            () = lab.stop.cancelled() => return,
        };
        let at = lab.recorder.clock.now();
        if end == WatchEnd::Broken {
            target.forget();
        }
        lab.rights.update(watch, |record| record.end = Some((at, end)));
        tokio::time::sleep(Duration::from_millis(rng.random_range(WATCH_AGAIN))).await;
    }
}

/// The request for a watch of all keys of a user, or of the idle one, from the revision `from` on;
/// 0 for new events only.
fn wish(user: usize, from: i64, is_idle: bool) -> pb::WatchCreateRequest {
    let prefix = prefix_of(user);
    let (key, range_end) = match is_idle {
        true => (format!("{prefix}{QUIET}"), Vec::new()),
        false => (prefix.clone(), prefix_end(&prefix)),
    };
    pb::WatchCreateRequest { key: key.into(), range_end: range_end.into(), start_revision: from, ..Default::default() }
}

/// Opens a watch and follows it to its end. `watch` is the number of its record. Sets `next` to the
/// revision after the last event, or to the oldest kept one if its beginning was compacted.
async fn one_watch(
    lab: &Lab,
    target: &Target,
    create: pb::WatchCreateRequest,
    watch: usize,
    next: &mut i64,
) -> WatchEnd {
    let clock = lab.recorder.clock;
    let opened = async {
        let mut client = target.watch().await.ok()?;
        let (send, requests) = mpsc::channel(1);
        send.send(pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await.ok()?;
        let answers = client.watch(ReceiverStream::new(requests)).await.ok()?.into_inner();
        Some((send, answers))
    };
    // The stream ends with its sender.
    let Ok(Some((_open, mut answers))) = tokio::time::timeout(CONNECT, opened).await else { return WatchEnd::Broken };
    while let Ok(Some(answer)) = answers.message().await {
        let at = clock.now();
        if answer.canceled {
            if answer.compact_revision > 0 {
                *next = answer.compact_revision;
                return WatchEnd::Compacted;
            }
            if let Some(login) = target.login().filter(|_| answer.cancel_reason.contains(UNKNOWN_TOKEN)) {
                login.renew();
            }
            return WatchEnd::Cancelled(answer.cancel_reason);
        }
        let revisions: Vec<i64> =
            answer.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)).collect();
        *next = revisions.iter().max().map_or(*next, |last| last + 1);
        lab.rights.update(watch, |record| {
            if answer.created {
                record.opened = Some(at);
            }
            record.events.extend(revisions.into_iter().map(|revision| (at, revision)));
        });
    }
    WatchEnd::Broken
}
