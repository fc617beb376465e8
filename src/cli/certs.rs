//! `headwater certs`: authorities and certificates for the members and clients of a cluster.
//!
//! Invariant: an existing certificate or key is never replaced, and keys are readable by their
//! owner alone. Revocation lists are rewritten; a certificate that was revoked stays in them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::error::CliError;
use headwater_files::{FileError, Lock, LockError};
use headwater_tls::authority::{Authority, Pair, Purpose, serial_number};

/// Make the certificates of a cluster: two authorities, and the files of members and clients
///
/// The first run makes the authorities, `peer-ca` for members and `client-ca` for the client port;
/// later runs use them, so that members and clients can be added at any time. To replace a
/// certificate, remove its files and run this again; nodes take new files without a restart.
///
/// Example: headwater certs ./certs --member node1=10.0.0.1 --member node2=10.0.0.2 --client ops
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CertsArgs {
    /// Folder of the files; made if it does not exist
    dir: PathBuf,
    /// A member by its node.name, with the hosts under which it is reached: DNS names or addresses
    #[arg(long = "member", value_name = "NAME=HOST[,HOST]…")]
    members: Vec<String>,
    /// A client, by the name that its certificate is for
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Days for which the certificates of members and clients are valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Revoke a certificate of this directory: `peer.crl` and `client.crl` list it from now on
    #[arg(long = "revoke", value_name = "FILE")]
    revoked: Vec<PathBuf>,
}

const DAY: Duration = Duration::from_secs(86_400);
/// Files of the revocation lists: that of the authority `peer-ca`, and that of `client-ca`.
const LISTS: [&str; 2] = ["peer.crl", "client.crl"];
/// Directory of the certificates that were revoked, each in a file `SERIAL.crt`. Earlier versions
/// numbered the files from 0 on.
const REVOKED: &str = "revoked";
/// End of the name of an unfinished file, which an interrupted run may leave.
const DRAFT: &str = ".tmp";
/// Days for which authorities and revocation lists are valid: the most that `--days` allows.
const AUTHORITY_DAYS: u32 = 3650;

struct MemberNames {
    name: String,
    hosts: Vec<String>,
}

pub(super) fn run(args: CertsArgs) -> Result<(), CliError> {
    let members = args.members.iter().map(|text| member(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = args.clients.iter().find(|name| !is_file_name(name)) {
        return Err(CliError::Usage(format!("{name:?} cannot be the name of a client: it names files as well")));
    }
    let dir = &args.dir;
    make_dir(dir)?;
    let mut made = Vec::new();
    let peer_ca = authority(dir, "peer-ca", "Headwater members", &mut made)?;
    let client_ca = authority(dir, "client-ca", "Headwater clients", &mut made)?;
    let valid = DAY * args.days;
    for MemberNames { name, hosts } in &members {
        let of_member = dir.join(name);
        make_dir(&of_member)?;
        let names: Vec<String> = [name].into_iter().chain(hosts).cloned().collect();
        issue(&of_member, "peer", (&peer_ca, Purpose::Member), name, &names, valid, &mut made)?;
        issue(&of_member, "client", (&client_ca, Purpose::Server), name, &names, valid, &mut made)?;
    }
    for name in &args.clients {
        issue(dir, name, (&client_ca, Purpose::Client), name, &[], valid, &mut made)?;
    }
    // Lists without entries are there from the start, so that nodes can watch them.
    if !args.revoked.is_empty() || LISTS.iter().any(|name| !dir.join(name).exists()) {
        revoke(dir, &args.revoked, &peer_ca, &client_ca, &mut made)?;
    }
    show(dir, &members, &args.clients, &made)
}

fn member(text: &str) -> Result<MemberNames, CliError> {
    let wrong = |why: &str| CliError::Usage(format!("--member {text:?}: {why}; write NAME=HOST[,HOST]…"));
    let (name, hosts) = text.split_once('=').ok_or_else(|| wrong("the hosts are missing"))?;
    if !is_file_name(name) {
        return Err(wrong("the name cannot be used: it names a directory as well"));
    }
    let hosts: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
    if hosts.is_empty() {
        return Err(wrong("the hosts are missing"));
    }
    Ok(MemberNames { name: name.to_owned(), hosts })
}

/// Whether `name` can name files here: it consists of ASCII letters, digits, `-`, `_` and `.`, is
/// not empty, and has no leading dot. The names of the authorities and [`REVOKED`] are taken.
fn is_file_name(name: &str) -> bool {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let is_taken = ["peer-ca", "client-ca", REVOKED].contains(&name) || LISTS.contains(&name);
    is_plain && !name.starts_with('.') && !is_taken
}

fn make_dir(dir: &Path) -> Result<(), CliError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| CliError::Finding(format!("{}: {error}", dir.display())))
}

fn read(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| CliError::Finding(format!("{}: {error}", path.display())))
}

/// The authority of the files `NAME.crt` and `NAME.key`. Made if neither exists: then `made` gets
/// both paths. An error if only one exists.
fn authority(dir: &Path, name: &str, common_name: &str, made: &mut Vec<PathBuf>) -> Result<Authority, CliError> {
    let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    match (cert.exists(), key.exists()) {
        (true, true) => Authority::open(Pair { cert: read(&cert)?, key: read(&key)? })
            .map_err(|error| CliError::Finding(format!("{}: {error}", cert.display()))),
        (false, false) => {
            let authority = Authority::new(common_name, DAY * AUTHORITY_DAYS).map_err(CliError::other)?;
            write_pair(&cert, &key, authority.pair(), made)?;
            Ok(authority)
        }
        (has_cert, _) => {
            let (there, missing) = if has_cert { (&cert, &key) } else { (&key, &cert) };
            Err(CliError::Finding(format!("{} exists without {}", there.display(), missing.display())))
        }
    }
}

fn issue(
    dir: &Path,
    file: &str,
    (authority, purpose): (&Authority, Purpose),
    common_name: &str,
    names: &[String],
    valid: Duration,
    made: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    let (cert, key) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
    if let Some(there) = [&cert, &key].into_iter().find(|path| path.exists()) {
        return Err(CliError::Finding(format!(
            "{} exists: nothing is replaced; remove the .crt and .key of {common_name} to make them anew",
            there.display()
        )));
    }
    let pair = authority.issue_for(purpose, common_name, names, valid).map_err(CliError::other)?;
    write_pair(&cert, &key, &pair, made)
}

fn write_pair(cert: &Path, key: &Path, pair: &Pair, made: &mut Vec<PathBuf>) -> Result<(), CliError> {
    for (path, text) in [(key, &pair.key), (cert, &pair.cert)] {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| CliError::Finding(format!("{}: {error}", path.display())))?;
        made.push(path.to_owned());
    }
    Ok(())
}

/// Revokes the certificates in `files` beside those that were revoked before, and rewrites the
/// revocation lists of both authorities. No list changes unless every file is a certificate. A
/// certificate that is revoked already may be among `files`.
fn revoke(
    dir: &Path,
    files: &[PathBuf],
    peer_ca: &Authority,
    client_ca: &Authority,
    made: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    let new = files.iter().map(|file| certificate(file)).collect::<Result<Vec<_>, _>>()?;
    let kept = dir.join(REVOKED);
    headwater_files::create_dir(&kept).map_err(failed)?;
    // Otherwise the lists of two runs at once would each lack the certificates of the other run.
    let _alone = Lock::dir(&kept).map_err(|error| match error {
        LockError::Held { .. } => CliError::Finding(format!("{}: another run revokes certificates", kept.display())),
        LockError::File(error) => failed(error),
    })?;
    let mut revoked = revoked_before(&kept)?;
    for (serial, text) in new {
        let path = kept.join(format!("{serial}.crt"));
        if let Entry::Vacant(entry) = revoked.entry(serial) {
            headwater_files::replace(&path, text.as_bytes()).map_err(failed)?;
            entry.insert(text);
        }
    }
    let certs: Vec<String> = revoked.into_values().collect();
    // Serial numbers are random: one of the other authority's is in the list without effect.
    for (authority, name) in [peer_ca, client_ca].into_iter().zip(LISTS) {
        let list = authority.revoke(&certs, DAY * AUTHORITY_DAYS).map_err(CliError::other)?;
        let path = dir.join(name);
        // Nodes of another user may have been given the right to read the list.
        let permissions = fs::metadata(&path).ok().map(|found| found.permissions());
        headwater_files::replace(&path, list.as_bytes()).map_err(failed)?;
        if let Some(permissions) = permissions {
            fs::set_permissions(&path, permissions).map_err(headwater_files::at(&path)).map_err(failed)?;
        }
        made.push(path);
    }
    Ok(())
}

/// The texts of the certificates in the directory `kept`, by serial number. Unfinished files are
/// left out.
fn revoked_before(kept: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let mut revoked = BTreeMap::new();
    for entry in fs::read_dir(kept).map_err(CliError::other)? {
        let path = entry.map_err(CliError::other)?.path();
        if path.to_string_lossy().ends_with(DRAFT) {
            continue;
        }
        let (serial, text) = certificate(&path).map_err(|error| {
            CliError::Finding(format!("{error}; remove the file, and revoke the certificate that it was for again"))
        })?;
        revoked.insert(serial, text);
    }
    Ok(revoked)
}

/// The serial number of the certificate in a file, and the text of the file.
fn certificate(path: &Path) -> Result<(String, String), CliError> {
    let text = read(path)?;
    match serial_number(&text) {
        Ok(serial) => Ok((serial, text)),
        Err(error) => Err(CliError::Finding(format!("{}: {error}", path.display()))),
    }
}

fn failed(error: FileError) -> CliError {
    CliError::Finding(error.to_string())
}

fn show(dir: &Path, members: &[MemberNames], clients: &[String], made: &[PathBuf]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    for path in made {
        writeln!(out, "{}", path.display())?;
    }
    let dir = dir.display();
    if let Some(MemberNames { name, hosts }) = members.first() {
        writeln!(out, "\nOn {name} (its files are in {dir}/{name}; of the authorities it needs the .crt alone):")?;
        writeln!(
            out,
            "  headwater serve --node-name {name} --advertise-client https://{host}:2379 --advertise-peer https://{host}:2380 \\\n    \
             --tls-cert {dir}/{name}/client.crt --tls-key {dir}/{name}/client.key --tls-trusted-ca {dir}/client-ca.crt --tls-crl {dir}/client.crl --tls-client-certs require \\\n    \
             --peer-tls-cert {dir}/{name}/peer.crt --peer-tls-key {dir}/{name}/peer.key --peer-tls-trusted-ca {dir}/peer-ca.crt --peer-tls-crl {dir}/peer.crl …",
            host = hosts[0]
        )?;
    }
    if let Some(name) = clients.first() {
        let host = members.first().map_or("HOST", |member| member.hosts[0].as_str());
        writeln!(out, "\nAs {name}:")?;
        let files = format!("--cacert {dir}/client-ca.crt --cert {dir}/{name}.crt --key {dir}/{name}.key");
        writeln!(out, "  headwater --endpoints https://{host}:2379 {files} get greeting")?;
        writeln!(out, "  etcdctl --endpoints https://{host}:2379 {files} get greeting")?;
        writeln!(out, "  curl {files} https://{host}:2379/health")?;
    }
    writeln!(out, "\nKeep {dir}/peer-ca.key and {dir}/client-ca.key where no node and no client can read them.")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use base64::Engine;

    use super::*;

    fn args(dir: &Path, members: &[&str], clients: &[&str]) -> CertsArgs {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        CertsArgs { dir: dir.to_owned(), members: owned(members), clients: owned(clients), days: 1, revoked: vec![] }
    }

    #[test]
    fn files_are_made_once_and_belong_to_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("certs");
        run(args(&dir, &["node1=127.0.0.1,localhost"], &["ops"])).unwrap();
        let ca = fs::read(dir.join("peer-ca.crt")).unwrap();
        for (path, mode) in
            [("", 0o700), ("node1", 0o700), ("node1/peer.key", 0o600), ("ops.key", 0o600), ("peer-ca.key", 0o600)]
        {
            assert_eq!(fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o777, mode, "{path}");
        }
        let error = run(args(&dir, &["node1=127.0.0.1"], &[])).unwrap_err().to_string();
        assert!(error.contains("nothing is replaced"), "{error}");
        run(args(&dir, &["node2=127.0.0.1"], &[])).unwrap();
        assert_eq!(fs::read(dir.join("peer-ca.crt")).unwrap(), ca, "the authority stays");
        let empty = fs::read_to_string(dir.join("client.crl")).unwrap();
        let revoking = CertsArgs { revoked: vec![dir.join("ops.crt")], ..args(&dir, &[], &[]) };
        run(revoking).unwrap();
        let list = fs::read_to_string(dir.join("client.crl")).unwrap();
        assert!(empty.contains("X509 CRL") && list.len() > empty.len(), "{list}");
        run(args(&dir, &[], &["dev"])).unwrap();
        assert_eq!(fs::read_to_string(dir.join("client.crl")).unwrap(), list, "the list stays");
    }

    /// Whether the revocation list of the clients' authority names the certificate of a client.
    fn is_listed(dir: &Path, client: &str) -> bool {
        let list = fs::read_to_string(dir.join("client.crl")).unwrap();
        let body: String = list.lines().filter(|line| !line.starts_with("-----")).collect();
        let list = base64::engine::general_purpose::STANDARD.decode(body).unwrap();
        let serial = serial_number(&fs::read_to_string(dir.join(format!("{client}.crt"))).unwrap()).unwrap();
        let serial: Vec<u8> =
            (0..serial.len()).step_by(2).map(|at| u8::from_str_radix(&serial[at..at + 2], 16).unwrap()).collect();
        list.windows(serial.len()).any(|part| part == serial)
    }

    fn revoking(dir: &Path, clients: &[&str]) -> Result<(), CliError> {
        let revoked = clients.iter().map(|client| dir.join(format!("{client}.crt"))).collect();
        run(CertsArgs { revoked, ..args(dir, &[], &[]) })
    }

    #[test]
    fn a_revocation_stays_when_files_of_others_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        run(args(dir, &[], &["a", "b", "c", "d"])).unwrap();
        let revoked = dir.join(REVOKED);
        // As earlier versions wrote them.
        fs::copy(dir.join("a.crt"), revoked.join("0.crt")).unwrap();
        fs::copy(dir.join("b.crt"), revoked.join("1.crt")).unwrap();
        fs::remove_file(revoked.join("0.crt")).unwrap();
        revoking(dir, &["c"]).unwrap();
        assert_eq!(["a", "b", "c", "d"].map(|client| is_listed(dir, client)), [false, true, true, false]);
        // Again, and one that has a file of the older name.
        revoking(dir, &["b", "c", "d"]).unwrap();
        assert_eq!(["a", "b", "c", "d"].map(|client| is_listed(dir, client)), [false, true, true, true]);
        assert_eq!(fs::read_dir(&revoked).unwrap().count(), 3);
        for file in fs::read_dir(&revoked).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
        }
    }

    #[test]
    fn an_interrupted_revocation_is_repeated_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        run(args(dir, &[], &["a", "b"])).unwrap();
        let revoked = dir.join(REVOKED);
        let text = fs::read_to_string(dir.join("a.crt")).unwrap();
        let draft = revoked.join(format!("{}.crt.tmp", serial_number(&text).unwrap()));
        fs::write(&draft, &text[..40]).unwrap();
        revoking(dir, &["b"]).unwrap();
        revoking(dir, &["a"]).unwrap();
        assert!(is_listed(dir, "a") && is_listed(dir, "b") && !draft.exists());
        fs::write(revoked.join("7.crt"), &text[..40]).unwrap();
        let list = fs::read(dir.join("client.crl")).unwrap();
        let error = revoking(dir, &["b"]).unwrap_err().to_string();
        assert!(error.contains("7.crt: reading a certificate") && error.contains("remove the file"), "{error}");
        assert_eq!(fs::read(dir.join("client.crl")).unwrap(), list, "nothing changes");
    }

    #[test]
    fn bad_input_revokes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        run(args(dir, &[], &["a"])).unwrap();
        let list = fs::read(dir.join("client.crl")).unwrap();
        for wrong in ["a.key", "missing.crt", "client.crl"] {
            let revoked = vec![dir.join("a.crt"), dir.join(wrong)];
            let error = run(CertsArgs { revoked, ..args(dir, &[], &[]) }).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        let held = Lock::dir(&dir.join(REVOKED)).unwrap();
        let error = revoking(dir, &["a"]).unwrap_err().to_string();
        assert!(error.contains("another run"), "{error}");
        drop(held);
        assert_eq!(fs::read_dir(dir.join(REVOKED)).unwrap().count(), 0, "no file is kept");
        assert_eq!(fs::read(dir.join("client.crl")).unwrap(), list);
    }

    #[test]
    fn who_may_read_a_list_may_read_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        run(args(dir, &[], &["a"])).unwrap();
        let list = dir.join("client.crl");
        fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
        revoking(dir, &["a"]).unwrap();
        assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn names_that_cannot_name_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (members, clients) in [
            (&["node1"][..], &[][..]),
            (&["=h"], &[]),
            (&["node1="], &[]),
            (&["../x=h"], &[]),
            (&["peer-ca=h"], &[]),
            (&["client.crl=h"], &[]),
            (&["revoked=h"], &[]),
            (&[], &["a/b"]),
            (&[], &[""]),
        ] {
            assert!(
                matches!(run(args(dir.path(), members, clients)), Err(CliError::Usage(_))),
                "{members:?} {clients:?}"
            );
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
