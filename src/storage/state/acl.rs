//! Tokens, policies and roles of Consul's ACLs in the state (`docs/consul-acl.md`).
//!
//! Owns the records and their keys. Knows no rule of a command. Invariants: a name, and the hash of
//! a secret, lead to one row each; builtin policies are no records; every change of a row notes
//! that rights have changed, except that of adding a token. Adding the anonymous one counts.
//!
//! | table | key | value |
//! |---|---|---|
//! | any | `i` ‖ id, accessor or name | the row |
//! | policies, roles | `n` ‖ name | the id |
//! | tokens | `s` ‖ hash of the secret | the accessor |
//! | tokens | `b` | empty; the version is that of the last bootstrap |

use bytes::Bytes;

use super::db::unread;
use super::keys::Table;
use super::options::HISTORY;
use super::reader::{NEWEST, StateReader};
use super::txn::WriteTxn;
use crate::StorageError;
use headwater_proto::codec;
use headwater_types::acl::{
    ACL_ANONYMOUS_ACCESSOR, AclBinding, AclKey, AclMethod, AclPolicy, AclRole, AclRow, AclToken, builtin_policy,
};
use headwater_types::{ChangeKind, KeyRange, KeyValue, LogIndex, Revision};

const ROW: u8 = b'i';
const NAME: u8 = b'n';
const SECRET: u8 = b's';
const BOOTSTRAP: &[u8] = b"b";

fn key(kind: u8, name: &[u8]) -> Bytes {
    [&[kind], name].concat().into()
}

/// The table and the key of a row.
fn address(row: &AclKey) -> (Table, Bytes) {
    let (table, name) = match row {
        AclKey::Token(accessor) => (Table::AclToken, accessor),
        AclKey::Policy(id) => (Table::AclPolicy, id),
        AclKey::Role(id) => (Table::AclRole, id),
        AclKey::Method(name) => (Table::AclMethod, name),
        AclKey::Binding(id) => (Table::AclBinding, id),
    };
    (table, key(ROW, name.as_bytes()))
}

fn key_of(row: &AclRow) -> AclKey {
    match row {
        AclRow::Token(token) => AclKey::Token(token.accessor.clone()),
        AclRow::Policy(policy) => AclKey::Policy(policy.id.clone()),
        AclRow::Role(role) => AclKey::Role(role.id.clone()),
        AclRow::Method(method) => AclKey::Method(method.name.clone()),
        AclRow::Binding(binding) => AclKey::Binding(binding.id.clone()),
    }
}

/// The record that leads to `row` by its name or by the hash of its secret: table, key, and the id
/// or accessor as value. `None` for a row without one: an auth method, a binding rule, or a token
/// without a secret.
fn pointers(row: &AclRow) -> Option<(Table, Bytes, Bytes)> {
    let id = |id: &String| Bytes::copy_from_slice(id.as_bytes());
    match row {
        AclRow::Token(token) if token.secret.0.is_empty() => None,
        AclRow::Token(token) => Some((Table::AclToken, key(SECRET, &token.secret.0), id(&token.accessor))),
        AclRow::Policy(policy) => Some((Table::AclPolicy, key(NAME, policy.name.as_bytes()), id(&policy.id))),
        AclRow::Role(role) => Some((Table::AclRole, key(NAME, role.name.as_bytes()), id(&role.id))),
        AclRow::Method(_) | AclRow::Binding(_) => None,
    }
}

/// Reads of tokens, policies, roles, auth methods and binding rules.
pub trait AclReader: StateReader + Sized {
    /// The stored row. `None` if there is none, also for builtin policies and for an anonymous
    /// token that was not stored.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    fn acl_row(&self, name: &AclKey) -> Result<Option<AclRow>, StorageError> {
        let (table, key) = address(name);
        let Some(version) = self.lookup(table, &key, NEWEST)? else { return Ok(None) };
        decode(self.load_one(&version)?.kv, version.index).map(Some)
    }

    /// A token by its accessor. `None` if there is none; the anonymous one always exists.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_token(&self, accessor: &str) -> Result<Option<AclToken>, StorageError> {
        Ok(match self.acl_row(&AclKey::Token(accessor.to_owned()))? {
            Some(AclRow::Token(token)) => Some(*token),
            _ if accessor == ACL_ANONYMOUS_ACCESSOR => Some(AclToken::anonymous()),
            _ => None,
        })
    }

    /// A token by the hash of its secret. `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_token_of_secret(&self, hash: &[u8]) -> Result<Option<AclToken>, StorageError> {
        match self.acl_pointer(Table::AclToken, &key(SECRET, hash))? {
            Some(accessor) => self.acl_token(&accessor),
            None => Ok(None),
        }
    }

    /// A policy by its id, builtin ones too. `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_policy(&self, id: &str) -> Result<Option<AclPolicy>, StorageError> {
        if let Some(policy) = builtin_policy(id).filter(|policy| policy.id == id) {
            return Ok(Some(policy));
        }
        Ok(match self.acl_row(&AclKey::Policy(id.to_owned()))? {
            Some(AclRow::Policy(policy)) => Some(*policy),
            _ => None,
        })
    }

    /// The id of the policy with this name, builtin ones too. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn acl_policy_id(&self, name: &str) -> Result<Option<String>, StorageError> {
        if let Some(policy) = builtin_policy(name).filter(|policy| policy.name == name) {
            return Ok(Some(policy.id));
        }
        self.acl_pointer(Table::AclPolicy, &key(NAME, name.as_bytes()))
    }

    /// A role by its id. `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_role(&self, id: &str) -> Result<Option<AclRole>, StorageError> {
        Ok(match self.acl_row(&AclKey::Role(id.to_owned()))? {
            Some(AclRow::Role(role)) => Some(*role),
            _ => None,
        })
    }

    /// The id of the role with this name. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn acl_role_id(&self, name: &str) -> Result<Option<String>, StorageError> {
        self.acl_pointer(Table::AclRole, &key(NAME, name.as_bytes()))
    }

    /// An auth method by its name. `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_method(&self, name: &str) -> Result<Option<AclMethod>, StorageError> {
        Ok(match self.acl_row(&AclKey::Method(name.to_owned()))? {
            Some(AclRow::Method(method)) => Some(*method),
            _ => None,
        })
    }

    /// Whether the auth method that issued the token does not exist any more. Such a token is not
    /// accepted, even before it is removed. True also if a method of the same name was made later
    /// than the token. False for a token of no method.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_method_is_gone(&self, token: &AclToken) -> Result<bool, StorageError> {
        if token.method.is_empty() {
            return Ok(false);
        }
        Ok(self.acl_method(&token.method)?.is_none_or(|method| method.created > token.created))
    }

    /// A binding rule by its id. `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`acl_row`](Self::acl_row).
    fn acl_binding(&self, id: &str) -> Result<Option<AclBinding>, StorageError> {
        Ok(match self.acl_row(&AclKey::Binding(id.to_owned()))? {
            Some(AclRow::Binding(binding)) => Some(*binding),
            _ => None,
        })
    }

    /// Log index of the last bootstrap; zero before the first.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn acl_bootstrapped(&self) -> Result<LogIndex, StorageError> {
        Ok(self.lookup(Table::AclToken, BOOTSTRAP, NEWEST)?.map_or(LogIndex::ZERO, |version| version.index))
    }

    #[doc(hidden)]
    fn acl_pointer(&self, table: Table, key: &[u8]) -> Result<Option<String>, StorageError> {
        let Some(version) = self.lookup(table, key, NEWEST)? else { return Ok(None) };
        let kv = self.load_one(&version)?.kv;
        let text = String::from_utf8(kv.value.to_vec());
        text.map(Some).map_err(|_| super::db::corrupt(HISTORY, &kv.key, "not an id"))
    }
}

impl<T: StateReader> AclReader for T {}

/// Every stored row of `table`, one of the tables of ACLs, in order of the id, accessor or name.
/// Builtin policies and an unstored anonymous token are not among them.
///
/// # Errors
///
/// If the disk failed, or a record cannot be decoded.
pub fn acl_rows(state: &impl StateReader, table: Table) -> Result<Vec<AclRow>, StorageError> {
    let mut versions = Vec::new();
    let mut scan = state.scan(table, &KeyRange::prefix(Bytes::from_static(&[ROW])), NEWEST)?;
    while let Some((_, version)) = scan.next()? {
        versions.push(version);
    }
    let records = state.load(&versions)?;
    versions.iter().zip(records).map(|(version, record)| decode(record.kv, version.index)).collect()
}

fn decode(kv: KeyValue, modified: LogIndex) -> Result<AclRow, StorageError> {
    codec::decode_acl_row(kv.value, modified).map_err(|error| unread(HISTORY, &kv.key, error))
}

impl WriteTxn<'_> {
    /// Writes a row, and the record that leads to it by its name or secret. Notes that rights have
    /// changed, except for a new token: no request was judged by it yet. A new anonymous token
    /// counts as a change.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn put_acl_row(&mut self, row: &AclRow) -> Result<(), StorageError> {
        let name = key_of(row);
        let stored = self.acl_row(&name)?;
        // Requests without a secret were judged by the anonymous token before it was stored.
        let is_new_token = matches!(&name, AclKey::Token(accessor) if accessor != ACL_ANONYMOUS_ACCESSOR);
        if stored.is_some() || !is_new_token {
            self.note_rights_changed();
        }
        let before = stored.as_ref().and_then(pointers);
        let after = pointers(row);
        if before != after {
            if let Some((table, key, _)) = before {
                self.set_acl_record(table, key, None)?;
            }
            if let Some((table, key, id)) = after {
                self.set_acl_record(table, key, Some(id))?;
            }
        }
        let (table, key) = address(&name);
        self.set_acl_record(table, key, Some(codec::encode_acl_row(row)))
    }

    /// Removes a row, and the record that leads to it by its name or secret. Notes that rights have
    /// changed. Returns false, without a change, if the row is not there.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn delete_acl_row(&mut self, name: &AclKey) -> Result<bool, StorageError> {
        let Some(row) = self.acl_row(name)? else { return Ok(false) };
        self.note_rights_changed();
        if let Some((table, key, _)) = pointers(&row) {
            self.set_acl_record(table, key, None)?;
        }
        let (table, key) = address(name);
        self.set_acl_record(table, key, None)?;
        Ok(true)
    }

    /// Notes that the current command is a bootstrap.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn set_acl_bootstrapped(&mut self) -> Result<(), StorageError> {
        self.set_acl_record(Table::AclToken, Bytes::from_static(BOOTSTRAP), Some(Bytes::new()))
    }

    fn set_acl_record(&mut self, table: Table, key: Bytes, value: Option<Bytes>) -> Result<(), StorageError> {
        self.note_acl_changed();
        let previous = self.lookup(table, &key, NEWEST)?;
        match (value, previous) {
            (Some(value), previous) => {
                let version = previous.map_or(1, |previous| previous.version + 1);
                self.put(table, KeyValue { key, value, version, ..KeyValue::default() }, previous.as_ref());
            }
            (None, Some(previous)) => self.delete(table, key, ChangeKind::Delete, Revision::default(), &previous),
            (None, None) => {}
        }
        Ok(())
    }
}
