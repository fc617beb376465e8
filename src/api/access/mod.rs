//! Access checks of the client port: the right that each method and path needs (its requirement),
//! checked before each handler (spec: security §2 and §5).
//!
//! Owns the tables ([`methods`], [`paths`]), the check, and the line of the audit log for each
//! request. Knows no message: the node judges the exact intervals of a request, and all its side
//! effects. Invariants: while authentication or ACLs are on, a method or path without a row is open
//! to root alone; this module refuses a request before anything is looked up for it, so its refusal
//! is the same whether the object exists or not. Tests compare the tables with the descriptors and
//! the routes.

mod methods;
mod paths;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, Method, Request};

use headwater_api_shared::caller::{Caller, Connected, Credentials};
use headwater_node::{
    AuditIdentity, AuditLine, AuditLog, AuditTrail, Authorizer, ClientKey, Node, NodeError, Principal, RequestContext,
};
use headwater_types::{Access, AuthRefusal, Face, KeyRange, Refusal, Space};

pub(super) use refusal::{grpc as grpc_refusal, plain as plain_refusal};

/// The right that a method or a path asks for. While neither authentication nor ACLs are on, every
/// requirement admits every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// No authentication and no right. Also admits expired and unknown tokens, which the handler
    /// may judge. An operation that only reads checks no password either: a request with a password
    /// counts as the anonymous principal.
    Open,
    /// As [`Open`](Self::Open), but a password is always checked. The handler or the node judges
    /// each request on the stream.
    Stream,
    /// Authentication, and no right. Admits the anonymous principal only if names without a rule
    /// are allowed by default, or if it has every right.
    Authenticated,
    /// As [`Authenticated`](Self::Authenticated). Also admits a node that is expected to join: one
    /// that was announced, or that shows an invitation.
    Members,
    /// Authentication, or any right of the anonymous principal. The node judges each part of the
    /// request.
    ByNode,
    /// At least one of these accesses, to at least one key of its space. The node judges the keys
    /// of the request.
    AnyOf(&'static [(Space, Access)]),
    /// No right, but a principal that is accepted; with ACLs on, the anonymous token is enough. The
    /// handler judges the names of the request, or leaves out all rows that may not be read. The
    /// accesses are those that the handler asks for; they are not checked here.
    ByHandler(&'static [(Space, Access)]),
    /// An access to the whole of a space, such as the cluster.
    Whole(Space, Access),
    /// Every right.
    Root,
}

/// Whether a method may change something. The level of the audit log depends on it, and the check
/// of passwords on operations that are [`Requirement::Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

/// A method, or a path, with its requirement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The path of the gRPC method, the plain path, or the path of a route of Consul. A plain path
    /// or a route that ends in `/` also stands for everything below it.
    pub(super) path: &'static str,
    pub(super) requirement: Requirement,
    pub(super) effect: Effect,
}

/// The requirement and the effect of methods and paths without a row.
const UNLISTED: (Requirement, Effect) = (Requirement::Root, Effect::Changes);

/// Longest wait for a newer state before a client without credentials is refused.
const TURNED_OFF_WAIT: Duration = Duration::from_secs(1);

/// The method or path of a request, with its requirement.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    requirement: Requirement,
    effect: Effect,
    /// The name of the API, for the audit log.
    face: &'static str,
    /// The face of the commands that the request proposes; `None` if no face has the name `face`.
    proposes: Option<Face>,
    /// The name of the method, for the audit log.
    method: Arc<str>,
}

impl Operation {
    fn new((requirement, effect): (Requirement, Effect), face: &'static str, method: impl Into<Arc<str>>) -> Self {
        Self { requirement, effect, face, proposes: Face::named(face), method: method.into() }
    }

    /// The operation of the gRPC method at `path`; `UNLISTED` for a path without a row. `face` is
    /// the name of its API.
    pub(super) fn of_method(face: &'static str, path: &str) -> Self {
        let row = methods::METHODS.iter().find(|row| row.path == path);
        Self::new(row.map_or(UNLISTED, |row| (row.requirement, row.effect)), face, path)
    }

    /// The operation of a route of Consul's API. `path` is the path of the row in the table; it
    /// ends in `/` where the name of an object follows: `/v1/kv/`. A method and path without a row
    /// get [`UNLISTED`].
    fn of_consul(method: &Method, path: &str) -> Self {
        let row = paths::CONSUL.iter().find(|found| found.method == *method && found.row.path == path);
        let row = row.map_or(UNLISTED, |found| (found.row.requirement, found.row.effect));
        Self::new(row, "consul", format!("{method} {path}"))
    }

    /// The operation of a path of plain HTTP; `UNLISTED` for a path without a row.
    fn of_plain(method: &Method, path: &str) -> Self {
        let fits = |row: &&Row| match row.path.strip_suffix('/') {
            Some(_) => path.starts_with(row.path),
            None => path == row.path,
        };
        match paths::PLAIN.iter().find(fits) {
            Some(row) => Self::new((row.requirement, row.effect), "http", format!("{method} {}", row.path)),
            None => Self::new(UNLISTED, "http", format!("{method} other")),
        }
    }

    /// Whether the requirement is [`Requirement::Open`] and the effect [`Effect::Reads`].
    fn is_open_read(&self) -> bool {
        self.requirement == Requirement::Open && self.effect == Effect::Reads
    }

    /// The operation of all paths of REST. Requires read or write access to at least one resource,
    /// before the type in the path is looked up. The gRPC method that is called then checks the
    /// exact right.
    fn of_rest() -> Self {
        let some = &[(Space::Resource, Access::READ), (Space::Resource, Access::WRITE)];
        Self::new((Requirement::AnyOf(some), Effect::Reads), "rest", "/api/")
    }
}

/// The reason of a refusal by the local state. A newer state may admit the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleRefusal {
    /// The principal has none of the accesses that [`Requirement::AnyOf`] asks for.
    Right,
    /// The access control lists do not know the token.
    Token,
    /// The request has no credentials. Authentication may have just been turned off.
    Credentials,
}

/// The access checks of the client port.
pub(super) struct AccessChecks {
    node: Node,
    /// Operations of Consul's paths, by method and path.
    consul: HashMap<(Method, &'static str), Operation>,
    unlisted: Operation,
    rest: Operation,
}

/// The resolved principal of a request.
pub(super) struct KnownPrincipal {
    principal: Principal,
    /// The principal's rights; `None` if they were not looked up, or the look-up failed.
    authorizer: Option<Authorizer>,
}

impl From<Principal> for KnownPrincipal {
    fn from(principal: Principal) -> Self {
        Self { principal, authorizer: None }
    }
}

/// An admitted request.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// The principal and the client of the request. After
    /// [`hand_over_caller`](Self::hand_over_caller): the default caller, which is anonymous.
    pub(super) caller: Caller,
    /// The request's line in the audit log; `None` if the audit log is off.
    pub(super) line: Option<PendingLine>,
}

impl Admitted {
    /// Moves the caller into the extensions of the request, from which the handler reads it.
    pub(super) fn hand_over_caller(&mut self, extensions: &mut Extensions) {
        extensions.insert(std::mem::take(&mut self.caller));
    }
}

/// The line of the audit log for a request whose answer is not known yet.
#[derive(Debug)]
pub(super) struct PendingLine {
    log: AuditLog,
    trail: AuditTrail,
    line: AuditLine,
    /// Whether the line is written if the request is allowed. A refusal is always written.
    logs_allowed: bool,
}

impl PendingLine {
    /// Writes the line of a refusal, always, and that of an allowed request if the level of the log
    /// asks for it. `allowed` is false if the answer is a refusal. A denial in the trail also
    /// counts as a refusal. `index` is the log index of the answer.
    pub(super) fn write(self, allowed: bool, index: Option<u64>) {
        let allowed = allowed && !self.trail.was_denied();
        if self.logs_allowed || !allowed {
            self.log.write(AuditLine { on: self.trail.take(), allowed, index, ..self.line });
        }
    }
}

impl AccessChecks {
    pub(super) fn new(node: Node) -> Self {
        let consul = paths::CONSUL.iter().map(|found| {
            let operation = Operation::of_consul(&found.method, found.row.path);
            ((found.method.clone(), found.row.path), operation)
        });
        Self {
            node,
            consul: consul.collect(),
            unlisted: Operation::new(UNLISTED, "http", "other"),
            rest: Operation::of_rest(),
        }
    }

    /// The operation of a method on a path of Consul's API. `path` is the path of the route, or
    /// `None` if no route matches. Without a row for both, the operation that is open to root
    /// alone.
    pub(super) fn consul(&self, method: &Method, path: Option<&'static str>) -> &Operation {
        path.and_then(|path| self.consul.get(&(method.clone(), path))).unwrap_or(&self.unlisted)
    }

    /// The operation of the REST paths of resources.
    pub(super) fn rest(&self) -> &Operation {
        &self.rest
    }

    /// The operation of a path of plain HTTP. A path without a row is open to root alone.
    pub(super) fn plain(&self, method: &Method, path: &str) -> Operation {
        Operation::of_plain(method, path)
    }

    /// The credentials of a request, not checked yet. The check of a password takes time
    /// ([`AccessChecks::resolve_principal`]).
    pub(super) fn credentials_of(headers: &HeaderMap, connected: Option<&Connected>) -> Credentials {
        Credentials::read(headers, connected.and_then(|connected| connected.certificate.as_ref()))
    }

    /// The principal of the credentials that [`principal_at_once`](Self::principal_at_once)
    /// returned as `Err`. Checks a password, which counts for nothing while neither authentication
    /// nor ACLs are on. Waits until the local state has a token of etcd's Auth that was just
    /// issued, a token of Consul's ACLs that was just made, or a right that was just granted.
    /// Without credentials, waits for a newer state too: authentication may have just been turned
    /// off. Does not check the requirement: [`admit`](Self::admit) does.
    ///
    /// # Errors
    ///
    /// If a password is wrong or an issued token is not known in time, which is written to the
    /// audit log. Also the errors of a write (of the token for a password) and of a linearizable
    /// read.
    pub(super) async fn resolve_principal(
        &self,
        operation: &Operation,
        shown: Credentials,
        connected: Option<&Connected>,
        timeout: Duration,
    ) -> Result<Principal, NodeError> {
        let client = connected.map(|connected| connected.client).unwrap_or_default();
        let unlocked = self.principal_of(operation, shown, client, timeout).await;
        if unlocked.as_ref().is_err_and(is_refused)
            && let Some(line) = self.line(self.node.audit(), operation, AuditIdentity::Unknown, connected)
        {
            line.write(false, None);
        }
        unlocked
    }

    async fn principal_of(
        &self,
        operation: &Operation,
        shown: Credentials,
        client: ClientKey,
        timeout: Duration,
    ) -> Result<Principal, NodeError> {
        let context = RequestContext { client, ..RequestContext::within(timeout) };
        let principal = match shown {
            Credentials::Principal(principal) => {
                let context = RequestContext { principal, ..context.clone() };
                self.node.await_token(&context).await?;
                context.principal
            }
            Credentials::Password { user, password } => match self.node.authorizer(&context) {
                // Credentials mean nothing while nothing is judged.
                Ok(authorizer) if authorizer.is_open() => Principal::Anonymous,
                _ => self.node.auth().authenticate_cached(&context, &user, &password).await?,
            },
        };
        let context = RequestContext { principal, ..context };
        match self.look_up(operation, &context) {
            Err(StaleRefusal::Right) => self.node.check_linearizable(&context).await?,
            Err(StaleRefusal::Token) => self.node.learn_token(&context).await,
            Err(StaleRefusal::Credentials) => {
                let wait = RequestContext::within(timeout.min(TURNED_OFF_WAIT));
                let context = RequestContext { client, ..wait };
                if let Err(error) = self.node.check_linearizable(&context).await {
                    tracing::debug!(%error, "a client without credentials is judged by the local state");
                }
            }
            Ok(_) => {}
        }
        Ok(context.principal)
    }

    /// The principal, if [`admit`](Self::admit) can judge it by the local state at once. Otherwise
    /// `Err` with the credentials, for [`resolve_principal`](Self::resolve_principal): a password
    /// must be checked, or a newer state may have the token or the right that this one lacks. A
    /// password on an operation that only reads and is open to everybody is not checked: the
    /// principal is anonymous.
    pub(super) fn principal_at_once(
        &self,
        operation: &Operation,
        shown: Credentials,
    ) -> Result<KnownPrincipal, Credentials> {
        match shown {
            Credentials::Principal(principal) => {
                let context = RequestContext { principal, ..RequestContext::within(Duration::ZERO) };
                match self.look_up(operation, &context) {
                    Ok(authorizer) if !self.node.awaits_token(&context) => {
                        Ok(KnownPrincipal { principal: context.principal, authorizer })
                    }
                    _ => Err(Credentials::Principal(context.principal)),
                }
            }
            // A check of health works without a quorum, which a password may need.
            Credentials::Password { .. } if operation.is_open_read() => Ok(Principal::Anonymous.into()),
            shown @ Credentials::Password { .. } => Err(shown),
        }
    }

    /// The rights of a principal. `Err` if the local state refuses the principal for a reason that
    /// a newer state may not have. `Ok(None)` if `operation` needs no look-up here, or if the
    /// look-up fails otherwise: [`admit`](Self::admit) then meets the same error.
    fn look_up(&self, operation: &Operation, context: &RequestContext) -> Result<Option<Authorizer>, StaleRefusal> {
        let asks_for_keys = matches!(operation.requirement, Requirement::AnyOf(_));
        let may_be_new = operation.requirement != Requirement::Open && self.node.shows_acl_token(context);
        let has_none = matches!(context.principal, Principal::Anonymous) && operation.requirement.needs_credentials();
        if !asks_for_keys && !may_be_new && !has_none {
            return Ok(None);
        }
        match self.node.authorizer(context) {
            Ok(authorizer) if asks_for_keys && operation.requirement.permit(&authorizer).is_err() => {
                Err(StaleRefusal::Right)
            }
            Ok(authorizer) => Ok(Some(authorizer)),
            Err(NodeError::Refused(Refusal::Auth(AuthRefusal::InvalidToken))) if may_be_new => Err(StaleRefusal::Token),
            Err(NodeError::Refused(Refusal::Auth(AuthRefusal::UserEmpty))) if has_none => {
                Err(StaleRefusal::Credentials)
            }
            Err(_) => Ok(None),
        }
    }

    /// Checks the requirement, and begins the line of the audit log.
    ///
    /// # Errors
    ///
    /// The refusal of the principal; its line is written already. Also the errors of a read of the
    /// local state, without a line.
    pub(super) fn admit(
        &self,
        operation: &Operation,
        known: KnownPrincipal,
        connected: Option<&Connected>,
    ) -> Result<Admitted, NodeError> {
        let log = self.node.audit();
        let client = connected.map(|connected| connected.client).unwrap_or_default();
        let KnownPrincipal { principal, authorizer } = known;
        let context = RequestContext { principal, ..RequestContext::within(Duration::ZERO) };
        let judged = authorizer.map_or_else(|| self.node.authorizer(&context), Ok);
        let judged = judged.and_then(|authorizer| match operation.requirement.permit(&authorizer) {
            Ok(()) => Ok(authorizer),
            Err(refusal) => Err(Refusal::from(refusal).into()),
        });
        match judged {
            Ok(authorizer) => {
                let line = self.line(log, operation, who(&authorizer, &context.principal), connected);
                let trail = line.as_ref().map(|line| line.trail.clone());
                Ok(Admitted {
                    caller: Caller { principal: context.principal, client, trail, face: operation.proposes },
                    line,
                })
            }
            // Methods without a requirement, such as Authenticate, also admit credentials that have
            // expired. The list of members admits nodes that join.
            Err(error) if is_refused(&error) && self.is_open_to(operation.requirement, &context) => {
                let line = self.line(log, operation, AuditIdentity::Unknown, connected);
                let trail = line.as_ref().map(|line| line.trail.clone());
                Ok(Admitted {
                    caller: Caller { principal: context.principal, client, trail, face: operation.proposes },
                    line,
                })
            }
            Err(error) => {
                if is_refused(&error) {
                    let who = match (&context.principal, self.node.authorizer(&context)) {
                        (_, Ok(authorizer)) => who(&authorizer, &context.principal),
                        (Principal::Anonymous | Principal::Joining(_), Err(_)) => AuditIdentity::Anonymous,
                        (Principal::Certificate(name), Err(_)) => AuditIdentity::Certificate(name.to_string()),
                        (_, Err(_)) => AuditIdentity::Unknown,
                    };
                    if let Some(line) = self.line(log, operation, who, connected) {
                        line.write(false, None);
                    }
                }
                Err(error)
            }
        }
    }

    /// The line of the audit log for a request on a port that looks at no credentials. `None` if
    /// the audit log is off, or if `operation` is not a read that is open to everybody.
    pub(super) fn line_of_anybody(&self, operation: &Operation, connected: Option<&Connected>) -> Option<PendingLine> {
        if !operation.is_open_read() {
            return None;
        }
        let certificate = connected.and_then(|connected| connected.certificate.as_ref());
        let who = certificate.map_or(AuditIdentity::Anonymous, |name| AuditIdentity::Certificate(name.to_string()));
        self.line(self.node.audit(), operation, who, connected)
    }

    /// Whether the requirement admits a request although its credentials were refused.
    fn is_open_to(&self, requirement: Requirement, context: &RequestContext) -> bool {
        match requirement {
            Requirement::Open | Requirement::Stream => true,
            Requirement::Members => self.node.members().is_expected(context),
            Requirement::Authenticated
            | Requirement::ByNode
            | Requirement::AnyOf(_)
            | Requirement::ByHandler(_)
            | Requirement::Whole(..)
            | Requirement::Root => false,
        }
    }

    fn line(
        &self,
        log: &AuditLog,
        operation: &Operation,
        who: AuditIdentity,
        connected: Option<&Connected>,
    ) -> Option<PendingLine> {
        if !log.is_on() {
            return None;
        }
        let line = AuditLine {
            time: None,
            who,
            from: connected.and_then(|it| it.address).map(|address| address.to_string()).unwrap_or_default(),
            face: operation.face,
            method: Arc::clone(&operation.method),
            on: Vec::new(),
            allowed: true,
            index: None,
            repeated: 0,
        };
        let logs_allowed = log.takes(operation.effect == Effect::Changes);
        Some(PendingLine { log: log.clone(), trail: AuditTrail::default(), line, logs_allowed })
    }
}

/// The credentials of an HTTP request, not checked yet. On a path below `/v1/`, a `?token=` that is
/// not empty comes before all headers.
pub(super) fn credentials_of_http<B>(request: &Request<B>, connected: Option<&Connected>) -> Credentials {
    let query = request.uri().query().filter(|_| request.uri().path().starts_with("/v1/")).unwrap_or_default();
    let token = form_urlencoded::parse(query.as_bytes()).find(|(name, value)| name == "token" && !value.is_empty());
    match token {
        Some((_, token)) => Credentials::token(&token),
        None => AccessChecks::credentials_of(request.headers(), connected),
    }
}

/// Whether the error is a refusal of the principal or of its credentials.
fn is_refused(error: &NodeError) -> bool {
    matches!(error, NodeError::Refused(Refusal::Auth(_)))
}

/// The identity of a principal in the audit log.
fn who(authorizer: &Authorizer, principal: &Principal) -> AuditIdentity {
    use headwater_node::PrincipalKind;
    match (authorizer.named(), principal) {
        (Some(named), _) => match named.kind {
            PrincipalKind::User => AuditIdentity::User(named.name.to_string()),
            PrincipalKind::Token => AuditIdentity::Token(named.name.to_string()),
            PrincipalKind::Certificate => AuditIdentity::Certificate(named.name.to_string()),
        },
        (None, Principal::Certificate(name)) => AuditIdentity::Certificate(name.to_string()),
        (None, _) => AuditIdentity::Anonymous,
    }
}

impl Requirement {
    /// Whether a request without credentials may be refused for that reason. False for
    /// [`Members`](Self::Members), which nodes without credentials use to join.
    fn needs_credentials(self) -> bool {
        match self {
            Self::Open | Self::Stream | Self::Members => false,
            Self::Authenticated | Self::ByNode | Self::AnyOf(_) | Self::ByHandler(_) | Self::Whole(..) | Self::Root => {
                true
            }
        }
    }

    /// Checks the requirement by the rights of a principal. Passes while neither authentication nor
    /// ACLs are on.
    fn permit(self, authorizer: &Authorizer) -> Result<(), AuthRefusal> {
        let Some(rights) = authorizer.rights() else { return Ok(()) };
        let is_open = match self {
            Self::Open | Self::Stream | Self::ByHandler(_) => true,
            Self::Authenticated | Self::Members => authorizer.permit_somebody().is_ok(),
            Self::ByNode => !authorizer.is_anonymous() || !rights.is_none(),
            Self::AnyOf(wanted) => {
                wanted.iter().any(|(space, access)| rights.touches(*space, &KeyRange::all(), *access))
            }
            Self::Whole(space, access) => rights.covers(space, &Space::WHOLE, access),
            Self::Root => rights.may_everything(),
        };
        match is_open {
            true => Ok(()),
            false => Err(authorizer.refusal()),
        }
    }
}
