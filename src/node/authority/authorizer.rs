//! The rights of a request's principal as of one state, and the decisions by them.

use std::sync::Arc;

use headwater_types::acl::ACL_ANONYMOUS_ACCESSOR;
use headwater_types::limits::CARRIED_RIGHTS_BYTES_MAX;
use headwater_types::{Access, AuthRefusal, Command, KeyRange, LogIndex, Proposer, Rights, Space};

/// The kinds of names that a principal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrincipalKind {
    /// A user of etcd's Auth, by password or token.
    User,
    /// A token of Consul's ACLs; the name is its accessor id.
    Token,
    /// The common name of a client's certificate.
    Certificate,
}

/// A principal that was identified by its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPrincipal {
    /// The name of the user, the accessor id of the token, or the certificate's common name.
    pub name: Arc<str>,
    /// The kind of the name.
    pub kind: PrincipalKind,
    /// The auth revision as of which it was authenticated; 0 for a token of Consul's ACLs.
    pub auth_revision: u64,
    /// Whether it stays authenticated when users or roles change. False for holders of signed
    /// tokens, which name a revision.
    pub follows: bool,
}

/// The rights of a request's principal as of one state. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authorizer {
    verdict: Verdict,
    /// Whether the anonymous principal counts as authenticated, because nothing is denied by
    /// default.
    allows_anonymous: bool,
    /// Log index of the last change of rights in that state.
    as_of: LogIndex,
    /// Log index of the command that made the principal; zero if it is unknown.
    made: LogIndex,
}

#[derive(Clone, Debug)]
enum Verdict {
    /// Nothing is judged: authentication is off, or the request comes from a task of the node. The
    /// identity is the one that proposals carry.
    Open(Option<Proposer>),
    /// The rights of a principal; without a name those of the anonymous one.
    Of(Option<Arc<NamedPrincipal>>, Arc<Rights>),
}

impl Authorizer {
    /// An authorizer that allows everything, because authentication is off.
    pub(crate) fn open(as_of: LogIndex) -> Self {
        Self { verdict: Verdict::Open(None), allows_anonymous: true, as_of, made: LogIndex::ZERO }
    }

    /// An authorizer of the node's own tasks, which allows everything. `is_judging` is set while
    /// authentication is on: their proposals carry [`Proposer::System`] then.
    pub(crate) fn system(as_of: LogIndex, is_judging: bool) -> Self {
        Self {
            verdict: Verdict::Open(is_judging.then_some(Proposer::System)),
            allows_anonymous: true,
            as_of,
            made: LogIndex::ZERO,
        }
    }

    /// An authorizer for a principal with these rights; `None` is the anonymous principal. `as_of`
    /// is the log index of the last change of rights (`StateHead::rights_changed`), in the state
    /// that `rights` were read from.
    pub fn of(named: Option<Arc<NamedPrincipal>>, rights: Arc<Rights>, as_of: LogIndex) -> Self {
        Self { verdict: Verdict::Of(named, rights), allows_anonymous: false, as_of, made: LogIndex::ZERO }
    }

    /// Sets whether the anonymous principal counts as authenticated.
    pub(crate) fn allowing_anonymous(self, allows_anonymous: bool) -> Self {
        Self { allows_anonymous, ..self }
    }

    /// Sets the log index of the command that made the principal.
    pub(crate) fn made_at(self, made: LogIndex) -> Self {
        Self { made, ..self }
    }

    /// Whether any right changed, or the principal was made, after the command at `index`. If so,
    /// the principal may not have been allowed to see some of the changes since that command. False
    /// if nothing is judged.
    pub fn has_changed_since(&self, index: LogIndex) -> bool {
        !self.is_open() && self.as_of.max(self.made) > index
    }

    /// Whether nothing is judged.
    pub fn is_open(&self) -> bool {
        matches!(self.verdict, Verdict::Open(_))
    }

    /// The name of the principal; `None` if it has none, and if nothing is judged. The anonymous
    /// token of Consul's ACLs has a name.
    pub fn named(&self) -> Option<&Arc<NamedPrincipal>> {
        match &self.verdict {
            Verdict::Open(_) => None,
            Verdict::Of(named, _) => named.as_ref(),
        }
    }

    /// The principal's name as a user of etcd's Auth, by password or by certificate; `None` for a
    /// token of Consul's ACLs, because its accessor id may equal a user's name; also without a
    /// name, and if nothing is judged.
    pub fn user(&self) -> Option<&str> {
        let is_user = |named: &&Arc<NamedPrincipal>| match named.kind {
            PrincipalKind::User | PrincipalKind::Certificate => true,
            PrincipalKind::Token => false,
        };
        self.named().filter(is_user).map(|named| &*named.name)
    }

    /// Whether the principal is the anonymous one: it has no name, or that of the anonymous token.
    /// False if nothing is judged.
    pub fn is_anonymous(&self) -> bool {
        let is_token =
            |named: &Arc<NamedPrincipal>| named.kind == PrincipalKind::Token && *named.name == *ACL_ANONYMOUS_ACCESSOR;
        !self.is_open() && self.named().is_none_or(is_token)
    }

    /// Checks that the principal is authenticated, for requests that need no right.
    ///
    /// # Errors
    ///
    /// If the principal is the anonymous one, does not have all rights, and something is denied by
    /// default.
    pub fn permit_somebody(&self) -> Result<(), AuthRefusal> {
        let may_everything = self.rights().is_none_or(|rights| rights.may_everything());
        match self.allows_anonymous || may_everything || !self.is_anonymous() {
            true => Ok(()),
            false => Err(self.refusal()),
        }
    }

    /// The refusal of a principal that lacks a right. It asks the anonymous principal without any
    /// right to authenticate.
    pub fn refusal(&self) -> AuthRefusal {
        match self.is_anonymous() && self.rights().is_some_and(|rights| rights.is_none()) {
            true => AuthRefusal::UserEmpty,
            false => AuthRefusal::PermissionDenied,
        }
    }

    /// Log index of the last change of rights in the state that the rights come from.
    pub fn as_of(&self) -> LogIndex {
        self.as_of
    }

    /// The rights; `None` if nothing is judged.
    pub fn rights(&self) -> Option<&Arc<Rights>> {
        match &self.verdict {
            Verdict::Open(_) => None,
            Verdict::Of(_, rights) => Some(rights),
        }
    }

    /// Checks that the principal has `access` to every key of the interval.
    ///
    /// # Errors
    ///
    /// If the principal lacks `access` to a key of the interval.
    pub fn permit(&self, space: Space, range: &KeyRange, access: Access) -> Result<(), AuthRefusal> {
        match self.rights().is_none_or(|rights| rights.covers(space, range, access)) {
            true => Ok(()),
            false => Err(AuthRefusal::PermissionDenied),
        }
    }

    /// Checks that the principal has the access to every key of each interval.
    ///
    /// # Errors
    ///
    /// If the principal lacks one of these.
    pub fn permit_all(&self, wanted: &[(Space, &KeyRange, Access)]) -> Result<(), AuthRefusal> {
        wanted.iter().try_for_each(|(space, range, access)| self.permit(*space, range, *access))
    }

    /// Whether the principal has `access` to one key: the filter of lists.
    pub fn allows(&self, space: Space, key: &[u8], access: Access) -> bool {
        self.rights().is_none_or(|rights| rights.allows(space, key, access))
    }

    /// Checks that the principal has all rights.
    ///
    /// # Errors
    ///
    /// If the principal may not do everything.
    pub fn permit_root(&self) -> Result<(), AuthRefusal> {
        match self.rights().is_none_or(|rights| rights.may_everything()) {
            true => Ok(()),
            false => Err(AuthRefusal::PermissionDenied),
        }
    }

    /// Whether the state that judges `command` must be current: the principal is a token, the
    /// verdict depends on data, and the token's rights are too large for the proposal to carry.
    pub(crate) fn needs_current_state(&self, command: &Command) -> bool {
        let Verdict::Of(Some(named), rights) = &self.verdict else { return false };
        named.kind == PrincipalKind::Token
            && rights.size_within(spaces_judged_again(rights, command)) > CARRIED_RIGHTS_BYTES_MAX
    }

    /// The identity that a proposal of `command` carries. `None` for a principal without a name,
    /// and while authentication is off.
    pub fn proposer(&self, command: &Command) -> Option<Proposer> {
        match &self.verdict {
            Verdict::Open(proposer) => proposer.clone(),
            Verdict::Of(None, _) => None,
            Verdict::Of(Some(named), rights) => Some(match named.kind {
                PrincipalKind::User | PrincipalKind::Certificate => {
                    Proposer::User { name: named.name.to_string(), auth_revision: named.auth_revision }
                }
                PrincipalKind::Token => Proposer::Token {
                    accessor: named.name.to_string(),
                    as_of: self.as_of,
                    rights: carried(rights, command),
                },
            }),
        }
    }
}

/// The rights that a token's proposal carries, to judge `command` again at apply. `None` if the
/// verdict does not depend on data, or if they are too large: apply then checks only `as_of`.
fn carried(rights: &Rights, command: &Command) -> Option<Arc<Rights>> {
    let spaces = spaces_judged_again(rights, command);
    let is_carried = !spaces.is_empty() && rights.size_within(spaces) <= CARRIED_RIGHTS_BYTES_MAX;
    is_carried.then(|| Arc::new(rights.within(spaces)))
}

/// The spaces in which the verdict over a command depends on data; none for rights to everything.
fn spaces_judged_again(rights: &Rights, command: &Command) -> &'static [Space] {
    if rights.may_everything() { &[] } else { headwater_fsm::spaces_judged_on_state(command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_no_user_of_the_same_name() {
        let user = |kind| {
            let named = NamedPrincipal { name: "alice".into(), kind, auth_revision: 1, follows: true };
            Authorizer::of(Some(Arc::new(named)), Arc::new(Rights::none()), LogIndex(1)).user().map(str::to_owned)
        };
        assert_eq!(user(PrincipalKind::User).as_deref(), Some("alice"));
        assert_eq!(user(PrincipalKind::Certificate).as_deref(), Some("alice"));
        assert_eq!(user(PrincipalKind::Token), None);
        assert_eq!(Authorizer::open(LogIndex(1)).user(), None);
    }
}
