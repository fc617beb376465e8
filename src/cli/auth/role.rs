//! `headwater role`: roles and their permissions.

use std::io::Write;

use bytes::Bytes;
use clap::{Subcommand, ValueEnum};

use super::super::ClientArgs;
use super::super::connect::Cluster;
use super::super::error::CliError;
use super::super::output::{self, WriteOut, json};
use super::{done, names};
use headwater_client::Repeat;
use headwater_proto::pb::authpb::{Permission, permission};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::kv::prefix_end;

/// Add, remove and show roles, give and take permissions
#[derive(Clone, Debug, clap::Args)]
pub(in super::super) struct RoleArgs {
    #[command(subcommand)]
    command: RoleCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum RoleCommand {
    /// Add a role
    Add {
        /// The name
        name: String,
    },
    /// Remove a role
    Delete {
        /// The name
        name: String,
    },
    /// Show the permissions of a role
    Get {
        /// The name
        name: String,
    },
    /// List the roles
    List,
    /// Permit a role to read or write a key or an interval of keys
    GrantPermission {
        /// The role
        role: String,
        /// The access
        #[arg(value_enum)]
        permission: PermissionType,
        #[command(flatten)]
        keys: Keys,
    },
    /// Take the permission of exactly this key or interval back
    RevokePermission {
        /// The role
        role: String,
        #[command(flatten)]
        keys: Keys,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PermissionType {
    Read,
    Write,
    Readwrite,
}

#[derive(Clone, Debug, clap::Args)]
struct Keys {
    /// The key, or the first of the interval
    key: String,
    /// First key after the interval
    range_end: Option<String>,
    /// All keys that begin with the key
    #[arg(long, conflicts_with_all = ["range_end", "from_key"])]
    prefix: bool,
    /// All keys from the key on
    #[arg(long, conflicts_with = "range_end")]
    from_key: bool,
}

impl Keys {
    /// etcd's pair of key and `range_end`, as etcdctl makes it. An empty `range_end` means the key
    /// alone, `\0` every key from it on. An empty key becomes `\0`.
    fn interval(&self) -> (Bytes, Bytes) {
        let open_end = || Bytes::from_static(b"\0");
        if self.key.is_empty() {
            let is_all = self.prefix || self.from_key;
            let range_end = self.range_end.clone().map(Bytes::from).unwrap_or_default();
            return (open_end(), if is_all { open_end() } else { range_end });
        }
        let key = Bytes::from(self.key.clone());
        let range_end = match (&self.range_end, self.prefix, self.from_key) {
            (Some(end), _, _) => end.clone().into(),
            (None, true, _) => prefix_end(&key).unwrap_or_else(open_end),
            (None, false, true) => open_end(),
            (None, false, false) => Bytes::new(),
        };
        (key, range_end)
    }
}

pub(in super::super) async fn run(args: RoleArgs, cluster: &Cluster, client: &ClientArgs) -> Result<(), CliError> {
    let mut out = std::io::stdout();
    let format = client.write_out;
    match args.command {
        RoleCommand::Add { name } => {
            let add = pb::AuthRoleAddRequest { name: name.clone() };
            let call = async |a: headwater_client::Attempt| a.auth().role_add(a.request(add.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("Role {name} created"))
        }
        RoleCommand::Delete { name } => {
            let delete = pb::AuthRoleDeleteRequest { role: name.clone() };
            let call = async |a: headwater_client::Attempt| a.auth().role_delete(a.request(delete.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("Role {name} deleted"))
        }
        RoleCommand::Get { name } => get(cluster, &mut out, format, name).await,
        RoleCommand::List => {
            let call =
                async |a: headwater_client::Attempt| a.auth().role_list(a.request(pb::AuthRoleListRequest {})).await;
            let list = cluster.call(Repeat::Harmless, call).await?;
            names(&mut out, format, &json::Named::roles(list.header.as_ref(), &list.roles))
        }
        RoleCommand::GrantPermission { role, permission, keys } => {
            let (key, range_end) = keys.interval();
            let perm_type = match permission {
                PermissionType::Read => permission::Type::Read,
                PermissionType::Write => permission::Type::Write,
                PermissionType::Readwrite => permission::Type::Readwrite,
            };
            let perm = Some(Permission { perm_type: perm_type.into(), key, range_end });
            let grant = pb::AuthRoleGrantPermissionRequest { name: role.clone(), perm };
            let call =
                async |a: headwater_client::Attempt| a.auth().role_grant_permission(a.request(grant.clone())).await;
            let header = cluster.call(Repeat::Harmless, call).await?.header;
            done(&mut out, format, header.as_ref(), &format!("Role {role} updated"))
        }
        RoleCommand::RevokePermission { role, keys } => {
            let (key, range_end) = keys.interval();
            let words = revoked(&role, &key, &range_end);
            let revoke = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
            let call =
                async |a: headwater_client::Attempt| a.auth().role_revoke_permission(a.request(revoke.clone())).await;
            let header = cluster.call(Repeat::Harmful, call).await?.header;
            done(&mut out, format, header.as_ref(), &words)
        }
    }
}

fn revoked(role: &str, key: &[u8], range_end: &[u8]) -> String {
    let (key, end) = (String::from_utf8_lossy(key), String::from_utf8_lossy(range_end));
    match range_end {
        [] => format!("Permission of key {key} is revoked from role {role}"),
        [0] => format!("Permission of range [{key}, <open ended> is revoked from role {role}"),
        _ => format!("Permission of range [{key}, {end}) is revoked from role {role}"),
    }
}

/// Reads the role `name` and prints its permissions.
pub(super) async fn get(
    cluster: &Cluster,
    out: &mut impl Write,
    format: WriteOut,
    name: String,
) -> Result<(), CliError> {
    let request = pb::AuthRoleGetRequest { role: name.clone() };
    let call = async |a: headwater_client::Attempt| a.auth().role_get(a.request(request.clone())).await;
    let role = cluster.call(Repeat::Harmless, call).await?;
    match format {
        WriteOut::Json => output::print_json(out, &json::RoleGet::from(&role)),
        WriteOut::Simple | WriteOut::Table => print(out, &name, &role.perm),
    }
}

fn print(out: &mut impl Write, name: &str, permissions: &[Permission]) -> Result<(), CliError> {
    use permission::Type;
    writeln!(out, "Role {name}")?;
    for (heading, kind) in [("KV Read:", Type::Read), ("KV Write:", Type::Write)] {
        writeln!(out, "{heading}")?;
        let gives = |permission: &&Permission| {
            let given = Type::try_from(permission.perm_type);
            given == Ok(kind) || given == Ok(Type::Readwrite)
        };
        for permission in permissions.iter().filter(gives) {
            writeln!(out, "\t{}", interval(permission))?;
        }
    }
    Ok(())
}

fn interval(permission: &Permission) -> String {
    let (key, end) = (String::from_utf8_lossy(&permission.key), String::from_utf8_lossy(&permission.range_end));
    let mut text = match permission.range_end.as_ref() {
        [] => return key.into_owned(),
        [0] => format!("[{key}, <open ended>"),
        _ => format!("[{key}, {end})"),
    };
    let is_prefix = prefix_end(&permission.key).unwrap_or_else(|| Bytes::from_static(b"\0")) == permission.range_end;
    if is_prefix && !permission.key.is_empty() {
        text.push_str(&format!(" (prefix {key})"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_etcdctls() {
        let keys = |key: &str, end: Option<&str>, prefix, from_key| {
            let (key, end) =
                Keys { key: key.to_owned(), range_end: end.map(str::to_owned), prefix, from_key }.interval();
            (String::from_utf8(key.to_vec()).unwrap(), String::from_utf8(end.to_vec()).unwrap())
        };
        let pair = |key: &str, end: &str| (key.to_owned(), end.to_owned());
        assert_eq!(keys("k", None, false, false), pair("k", ""));
        assert_eq!(keys("k", Some("m"), false, false), pair("k", "m"));
        assert_eq!(keys("k", None, true, false), pair("k", "l"));
        assert_eq!(keys("k", None, false, true), pair("k", "\0"));
        assert_eq!(keys("", None, true, false), pair("\0", "\0"));
        assert_eq!(keys("", None, false, false), pair("\0", ""));
    }

    #[test]
    fn roles_look_as_etcdctl_prints_them() {
        let give = |kind: permission::Type, key: &'static str, end: &'static str| Permission {
            perm_type: kind.into(),
            key: key.into(),
            range_end: end.into(),
        };
        let permissions = [
            give(permission::Type::Readwrite, "a", ""),
            give(permission::Type::Read, "b", "d"),
            give(permission::Type::Read, "p/", "p0"),
            give(permission::Type::Write, "x", "\0"),
        ];
        let mut out = Vec::new();
        print(&mut out, "r", &permissions).unwrap();
        let wanted = "Role r\nKV Read:\n\ta\n\t[b, d)\n\t[p/, p0) (prefix p/)\nKV Write:\n\ta\n\t[x, <open ended>\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        assert_eq!(revoked("r", b"a", b""), "Permission of key a is revoked from role r");
        assert_eq!(revoked("r", b"b", b"d"), "Permission of range [b, d) is revoked from role r");
        assert_eq!(revoked("r", b"x", b"\0"), "Permission of range [x, <open ended> is revoked from role r");
    }
}
