//! The author of a command, and the face that proposed it: history keeps both.
//!
//! Invariant: the numbers and the names are public. They are in records, in commands, and in
//! answers of the store's API.

use super::auth::Proposer;

/// The origin of a command: the API that proposed it, or the store itself. The numbers are on
/// disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Face {
    /// etcd's API, also over JSON.
    Etcd = 1,
    /// The early draft of etcd's API.
    EtcdEarly = 2,
    /// Typed resources, over gRPC and over JSON.
    Resource = 3,
    /// Consul's HTTP API.
    Consul = 4,
    /// `headwater.v1.Store`, the API over all parts of the store.
    Store = 5,
    /// The project's own small services, such as invitations.
    Headwater = 6,
    /// No API: a task of the store itself.
    Node = 7,
}

impl Face {
    /// Every face, in the order of its number.
    pub const ALL: [Self; 7] =
        [Self::Etcd, Self::EtcdEarly, Self::Resource, Self::Consul, Self::Store, Self::Headwater, Self::Node];

    /// The name of the face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::EtcdEarly => "etcd-early",
            Self::Resource => "resource",
            Self::Consul => "consul",
            Self::Store => "store",
            Self::Headwater => "headwater",
            Self::Node => "node",
        }
    }

    /// The face with a name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|face| face.name() == name)
    }

    /// The face with a number; `None` if there is none.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|face| *face as u8 == byte)
    }
}

/// The principal that proposed a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A user of etcd's Auth, by name.
    User(String),
    /// A token of Consul's ACLs, by its accessor id.
    Token(String),
    /// A task of the store itself.
    Node,
}

/// The author and the face of a command. Both are absent from commands of versions before 0.4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorship {
    /// The author; `None` if it is anonymous or unknown.
    pub author: Option<Author>,
    /// The face; `None` if it is unknown.
    pub face: Option<Face>,
}

impl Authorship {
    /// The authorship of a change that no principal proposed, such as one of the membership.
    pub const NODE: Self = Self { author: Some(Author::Node), face: Some(Face::Node) };

    /// The authorship of a proposal with this principal and face. Without a principal, the author
    /// is [`Author::Node`] for [`Face::Node`], because the store's tasks name no principal while
    /// authentication is off; for every other face it is `None`.
    pub fn of(proposer: Option<&Proposer>, face: Option<Face>) -> Self {
        let author = match proposer {
            Some(Proposer::User { name, .. }) => Some(Author::User(name.clone())),
            Some(Proposer::Token { accessor, .. }) => Some(Author::Token(accessor.clone())),
            Some(Proposer::System) => Some(Author::Node),
            None if face == Some(Face::Node) => Some(Author::Node),
            None => None,
        };
        Self { author, face }
    }

    /// Whether neither author nor face is known.
    pub fn is_unknown(&self) -> bool {
        self.author.is_none() && self.face.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_pinned() {
        let all: Vec<_> = Face::ALL.iter().map(|face| (*face as u8, face.name())).collect();
        let pinned = [
            (1, "etcd"),
            (2, "etcd-early"),
            (3, "resource"),
            (4, "consul"),
            (5, "store"),
            (6, "headwater"),
            (7, "node"),
        ];
        assert_eq!(all, pinned);
        for face in Face::ALL {
            assert_eq!(Face::named(face.name()), Some(face));
            assert_eq!(Face::from_byte(face as u8), Some(face));
        }
        assert_eq!((Face::named("Etcd"), Face::from_byte(0), Face::from_byte(8)), (None, None, None));
    }

    #[test]
    fn the_stores_own_tasks_are_authors_also_while_nothing_is_judged() {
        assert_eq!(Authorship::of(None, Some(Face::Node)), Authorship::NODE);
        assert_eq!(Authorship::of(Some(&Proposer::System), Some(Face::Consul)).author, Some(Author::Node));
        let user = Proposer::User { name: "alice".to_owned(), auth_revision: 1 };
        let of_user = Authorship::of(Some(&user), Some(Face::Etcd));
        assert_eq!(of_user.author, Some(Author::User("alice".to_owned())));
        assert!(Authorship::of(None, None).is_unknown());
        assert!(!Authorship::of(None, Some(Face::Etcd)).is_unknown());
    }
}
