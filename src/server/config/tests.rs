use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::*;
use headwater_types::limits::{LOG_KEEP_BYTES, REMOTE_ENDPOINTS_MAX, SNAPSHOT_EVERY_BYTES};

fn from_file(text: &str) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(&Sources { file: Some(file.path().to_owned()), ..Sources::default() })
}

fn problems(result: Result<Config, ConfigError>) -> Vec<(String, String)> {
    match result {
        Err(ConfigError::Invalid { problems }) => problems.into_iter().map(|p| (p.key, p.detail)).collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

const THREE: &str = r#"
[node]
id = 2
[cluster]
initial = [
  { id = 3, name = "c", peer = "http://10.0.0.3:2380", client = "http://10.0.0.3:2379" },
  { id = 1, name = "a", peer = "http://10.0.0.1:2380", client = "http://10.0.0.1:2379" },
  { id = 2, name = "b", peer = "http://10.0.0.2:2380", client = "http://10.0.0.2:2379" },
]
"#;

#[test]
fn nothing_set_is_one_node() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.data_dir, Path::new("headwater-data"));
    assert_eq!(config.node, NodeConfig { id: NodeId(1), name: "node1".into() });
    assert_eq!(config.advertise_client, "http://127.0.0.1:2379");
    assert_eq!(config.cluster.initial.len(), 1);
    assert_eq!(config.cluster.initial[0].peer, "http://127.0.0.1:2380");
}

#[test]
fn documented_defaults_are_the_defaults() {
    for setting in SETTINGS {
        // Defaults in words depend on other settings and are covered by the tests around this one.
        if setting.default.contains(' ') {
            continue;
        }
        let sources = Sources { flags: vec![(setting.key, setting.default.to_owned())], ..Sources::default() };
        assert_eq!(
            Config::load(&sources).unwrap(),
            Config::load(&Sources::default()).unwrap(),
            "{} = {}",
            setting.key,
            setting.default
        );
    }
}

#[test]
fn a_member_of_the_list_takes_name_and_addresses_from_it() {
    let config = from_file(THREE).unwrap();
    assert_eq!(config.node.name, "b");
    assert_eq!(config.advertise_peer, "http://10.0.0.2:2380");
    assert_eq!(config.advertise_client, "http://10.0.0.2:2379");
    let ids: Vec<u64> = config.cluster.initial.iter().map(|member| member.id.get()).collect();
    assert_eq!(ids, [1, 2, 3], "members are in one order on every node");
}

#[test]
fn flags_beat_environment_beats_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[raft]\nheartbeat = \"50ms\"\nelection-min = \"200ms\"\n[log]\nlevel = \"warn\"\n").unwrap();
    let config = Config::load(&Sources {
        file: Some(file.path().to_owned()),
        environment: vec![
            ("HEADWATER_RAFT_ELECTION_MIN".into(), "250ms".into()),
            ("HEADWATER_LOG_LEVEL".into(), "error".into()),
            ("HEADWATER_SERVICE_HOST".into(), "not ours".into()),
        ],
        flags: vec![("log.level", "debug".into())],
    })
    .unwrap();
    assert_eq!(config.raft.heartbeat, Duration::from_millis(50));
    assert_eq!(config.raft.election_min, Duration::from_millis(250));
    assert_eq!(config.log.level, "debug");
}

#[test]
fn misspelt_variables_are_refused_and_those_of_others_left_alone() {
    for (name, meant) in [
        ("HEADWATER_DATADIR", Some("HEADWATER_DATA_DIR")),
        ("HEADWATER_RAFT_HARTBEAT", Some("HEADWATER_RAFT_HEARTBEAT")),
        ("HEADWATER_LOG_LEVLE", Some("HEADWATER_LOG_LEVEL")),
        ("HEADWATER_SERVICE_HOST", None),
        ("HEADWATER_PORT", None),
        ("HEADWATER_PORT_2379_TCP_ADDR", None),
        ("HEADWATER_ENDPOINTS", None),
        ("HEADWATER_BIN", None),
        ("OTHER_DATADIR", None),
    ] {
        let sources = Sources { environment: vec![(name.into(), "1".into())], ..Sources::default() };
        match (Config::load(&sources), meant) {
            (Ok(_), None) => {}
            (Err(error), Some(meant)) => {
                let wanted = format!("{name} (from the environment): is no setting; did you mean {meant}?");
                assert!(error.to_string().contains(&wanted), "{error}");
            }
            (loaded, _) => panic!("{name}: {loaded:?}"),
        }
    }
}

#[test]
fn misspelt_levels_are_refused() {
    for (level, is_good) in [
        ("info", true),
        ("INFO", true),
        ("off", true),
        ("info,headwater::raft=debug", true),
        ("info,headwater_raft=debug", true),
        ("warn, h2=off", false),
        ("headwater[request{id=7}]=debug", true),
        ("inof", false),
        ("info,dbug", false),
        ("headwater=trase", false),
        ("headwater", false),
        ("", false),
    ] {
        let sources = Sources { flags: vec![("log.level", level.into())], ..Sources::default() };
        assert_eq!(Config::load(&sources).is_ok(), is_good, "{level:?}");
    }
}

#[test]
fn a_quota_is_a_size_or_what_etcd_takes() {
    for (text, wanted) in [
        ("8GiB", Some(Some(8 << 30))),
        ("off", Some(None)),
        ("0", Some(Some(2 << 30))),
        ("-1", Some(None)),
        ("8589934592", Some(Some(8 << 30))),
        ("0B", None),
        ("much", None),
        ("1.5GiB", None),
    ] {
        let sources = Sources { flags: vec![("quota.backend-bytes", text.into())], ..Sources::default() };
        assert_eq!(Config::load(&sources).ok().map(|config| config.quota.bytes_max), wanted, "{text}");
        let file = match text.parse::<i64>() {
            Ok(number) => format!("[quota]\nbackend-bytes = {number}\n"),
            Err(_) => format!("[quota]\nbackend-bytes = {text:?}\n"),
        };
        assert_eq!(from_file(&file).ok().map(|config| config.quota.bytes_max), wanted, "{file}");
    }
    assert!(from_file("[quota]\nbackend-bytes = true\n").is_err());
    assert!(from_file("[quota]\nauto-disarm = \"yes\"\n").is_err());
    assert!(from_file("[quota]\nauto-disarm = true\n").unwrap().quota.auto_disarm);
}

#[test]
fn history_is_kept_for_a_time_or_until_somebody_compacts_it() {
    let seconds = |seconds| Some(Some(Duration::from_secs(seconds)));
    for (text, wanted) in
        [("10s", seconds(10)), ("9999ms", None), ("0s", None), ("2h", seconds(7200)), ("off", Some(None)), ("3", None)]
    {
        let sources = Sources { flags: vec![("history.retention", text.into())], ..Sources::default() };
        assert_eq!(Config::load(&sources).ok().map(|config| config.history.retention), wanted, "{text}");
        let file = format!("[history]\nretention = {text:?}\n");
        assert_eq!(from_file(&file).ok().map(|config| config.history.retention), wanted, "{file}");
    }
    assert!(from_file("[history]\nretention = 60\n").is_err());
    assert_eq!(from_file("").unwrap().history.retention, Some(Duration::from_secs(3600)));
}

#[test]
fn lists_can_come_from_a_flag() {
    let list = r#"[{ id = 1, name = "a", peer = "http://h:1", client = "http://h:2" }]"#;
    let sources = Sources { flags: vec![("cluster.initial", list.into())], ..Sources::default() };
    assert_eq!(Config::load(&sources).unwrap().advertise_peer, "http://h:1");
}

#[test]
fn a_node_that_joins_is_told_the_rest_by_the_cluster() {
    let flags = |flags: &[(&'static str, &str)]| {
        let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        Config::load(&Sources { flags, ..Sources::default() })
    };
    let config = flags(&[
        ("join", "10.0.0.1:2379, http://h:1"),
        ("learner", "true"),
        ("listen-peer", "10.0.0.9:5"),
        ("insecure", "true"),
    ]);
    let config = config.unwrap();
    let endpoints = vec!["http://10.0.0.1:2379".into(), "http://h:1".into()];
    let joining = JoinConfig { endpoints, learner: true, token_file: None };
    assert_eq!(config.join, Some(joining));
    assert_eq!((config.node.name.as_str(), config.cluster.initial.len()), ("10.0.0.9:5", 0));
    let from_list = from_file("join = [\"h:1\"]\nlearner = false\n[node]\nname = \"n\"\n").unwrap();
    let joining = JoinConfig { endpoints: vec!["http://h:1".into()], learner: false, token_file: None };
    assert_eq!(from_list.join, Some(joining));
    for (wrong, key, why) in [
        (&[("join", "h:1"), ("node.id", "4")][..], "node.id", "together with join"),
        (&[("join", "h:1"), ("cluster.token", "t")], "cluster.token", "together with join"),
        (&[("join", "h")], "join", "port is missing"),
        (&[("join", "")], "join", "at least one"),
        (&[("join", "https://h:1")], "join", "TLS"),
        (&[("learner", "true")], "learner", "needs join"),
        (&[("join-token-file", "t")], "join-token-file", "needs join"),
        (&[("join", "h:1"), ("join-token-file", "")], "join-token-file", "empty"),
        (&[("cluster.invited-only", "\"yes\"")], "cluster.invited-only", "true or false"),
        (&[("join", "h:1"), ("learner", "\"yes\"")], "learner", "true or false"),
    ] {
        let found = problems(flags(wrong));
        assert!(found.len() == 1 && found[0].0 == key && found[0].1.contains(why), "{wrong:?}: {found:?}");
    }
}

#[test]
fn all_problems_of_a_file_are_reported_at_once() {
    let found = problems(from_file(
        "listen-client = 5\nhearbeat = 1\n[raft]\nhartbeat = \"1ms\"\nheartbeat = 100\nelection-max = \"600\"\n\
         [storage]\nblock-cache = \"64\"\n[nowhere]\nx = 1\n[log]\nformat = \"xml\"\n",
    ));
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(found.len(), 8, "{found:?}");
    for key in [
        "listen-client",
        "hearbeat",
        "raft.hartbeat",
        "raft.heartbeat",
        "raft.election-max",
        "storage.block-cache",
        "nowhere",
        "log.format",
    ] {
        assert!(keys.contains(&key), "{key} is missing in {found:?}");
    }
    let detail = |key: &str| &found.iter().find(|(k, _)| k == key).unwrap().1;
    assert_eq!(detail("raft.hartbeat"), "unknown key; did you mean raft.heartbeat?");
    assert_eq!(detail("nowhere"), "unknown key");
}

#[test]
fn rules_between_settings() {
    // (file, key that must be reported, part of the text)
    let cases = [
        ("listen-client = \"127.0.0.1:2380\"", "listen-peer", "must differ"),
        ("[node]\nid = 0", "node.id", "above zero"),
        ("listen-client = \"0.0.0.0:2379\"", "advertise-client", "must be set"),
        ("listen-peer = \"[::]:2380\"", "advertise-peer", "must be set"),
        ("[raft]\nheartbeat = \"5ms\"", "raft.heartbeat", "at least 10ms"),
        ("[raft]\nelection-min = \"150ms\"", "raft.election-min", "twice"),
        ("[raft]\nelection-max = \"300ms\"", "raft.election-max", "longer than"),
        ("[raft]\nelection-max = \"51s\"", "raft.election-max", "at most 50s"),
        ("[raft]\nsnapshot-every = 0", "raft.snapshot-every", "above zero"),
        ("[storage]\nlog-memtable = \"1023KiB\"", "storage.log-memtable", "between"),
        ("[storage]\nstate-memtable = \"2GiB\"", "storage.state-memtable", "between"),
        ("[runtime]\nworker-threads = 0", "runtime.worker-threads", "between"),
        ("[watch]\nwindow-size = \"4095KiB\"", "watch.window-size", "between 4MiB"),
        ("[watch]\nwindow-size = \"65GiB\"", "watch.window-size", "between 4MiB"),
        ("[watch]\nwindow-commits = 15", "watch.window-commits", "between 16"),
        ("[watch]\nwindow-commits = 1073741825", "watch.window-commits", "and 1073741824"),
        ("[watch]\ncatch-up-size = \"4095B\"", "watch.catch-up-size", "at least 4KiB"),
        ("[watch]\nwindow-size = \"4MiB\"\ncatch-up-size = \"5MiB\"", "watch.catch-up-size", "watch.window-size"),
        ("[watch]\ncatch-up-commits = 0", "watch.catch-up-commits", "above zero"),
        ("[watch]\nwindow-commits = 999", "watch.catch-up-commits", "watch.window-commits"),
        ("[watch]\nprogress-interval = \"99ms\"", "watch.progress-interval", "between 100ms"),
        ("[watch]\nprogress-interval = \"25h\"", "watch.progress-interval", "and 24h"),
        ("[watch]\nleader-loss-timeout = \"1199ms\"", "watch.leader-loss-timeout", "twice raft.election-max"),
        ("[raft]\nelection-max = \"1600ms\"", "watch.leader-loss-timeout", "twice raft.election-max"),
        ("[watch]\nleader-loss-timeout = \"61m\"", "watch.leader-loss-timeout", "at most 1h"),
        ("[limits]\nrequest-timeout = \"100ms\"", "limits.request-timeout", "election"),
        ("[limits]\nrequests-per-second = 10000001", "limits.requests-per-second", "at most 10000000"),
        ("[limits]\nrequests-per-second = 5\nburst = 10000001", "limits.burst", "at most 10000000"),
        ("[limits]\nburst = 5", "limits.burst", "needs limits.requests-per-second"),
        ("[http]\nallowed-origins = \"ui.example\"", "http.allowed-origins", "is no origin"),
        ("[http]\nallowed-origins = \"https://ui.example/\"", "http.allowed-origins", "is no origin"),
        ("ui = \"on\"", "ui", "must be off, read or write"),
        ("ui = true", "ui", "a string"),
        ("[http]\nallowed-hosts = \"a.example:80\"", "http.allowed-hosts", "without a port"),
        ("[consul]\ndatacenter = \"Paris 2\"", "consul.datacenter", "DNS"),
        ("[consul]\ndatacenter = \"\"", "consul.datacenter", "must not be empty"),
        ("[consul]\nremote-datacenters = \"dc2\"", "consul.remote-datacenters", "has no ="),
        ("[consul]\nremote-datacenters = \"dc1=a:1\"", "consul.remote-datacenters", "another datacenter"),
        ("[consul]\nremote-datacenters = \"dc2=a:1+b\"", "consul.remote-datacenters", "\"b\" is not HOST:PORT"),
        ("[consul]\nremote-datacenters = \"dc2=a:1,dc2=b:1\"", "consul.remote-datacenters", "\"dc2\" is there twice"),
        ("[consul]\nremote-datacenters = \"dc2=a:1+A:1\"", "consul.remote-datacenters", "\"A:1\" is there twice"),
        ("[consul]\nremote-datacenters = \"dc2=\"", "consul.remote-datacenters", "\"\" is not HOST:PORT"),
        ("[consul]\nremote-datacenters = \"dc2=a:1+\"", "consul.remote-datacenters", "\"\" is not HOST:PORT"),
        ("[consul]\nremote-datacenters = \"Dc 2=a:1\"", "consul.remote-datacenters", "another datacenter"),
        ("[consul]\nremote-datacenters = \"dc2=http://a:1\"", "consul.remote-datacenters", "without a scheme"),
        ("[dns]\nlisten = \"127.0.0.1:2380\"", "dns.listen", "must differ"),
        (
            "[consul]\nremote-datacenters = \"dc2=https://a:1\"",
            "consul.remote-datacenters",
            "tls.trusted-ca must be set",
        ),
        ("[dns]\nlisten = \"127.0.0.1:1\"\ntls-listen = \"127.0.0.1:2\"", "dns.tls-listen", "tls.cert and tls.key"),
        ("[dns]\ntls-listen = \"127.0.0.1:2\"", "dns.tls-listen", "needs dns.listen"),
        ("[dns]\nlisten = \"127.0.0.1:2\"\ntls-listen = \"127.0.0.1:2\"", "dns.tls-listen", "must differ"),
        ("[metrics]\nlisten = \"127.0.0.1:2379\"", "metrics.listen", "must differ from listen-client"),
        ("[metrics]\nlisten = \"127.0.0.1:2380\"", "metrics.listen", "must differ from listen-peer"),
        (
            "[metrics]\nlisten = \"127.0.0.1:1\"\n[dns]\nlisten = \"127.0.0.1:1\"",
            "metrics.listen",
            "must differ from dns.listen",
        ),
        ("[metrics]\nlisten = \"10.0.0.1:2381\"", "metrics.listen", "set metrics-tls.cert and metrics-tls.key"),
        ("[metrics]\nlisten = \"nowhere\"", "metrics.listen", "nowhere"),
        ("[metrics]\non-client-port = \"yes\"", "metrics.on-client-port", "true or false"),
        ("[metrics-tls]\nkey = \"k.pem\"", "metrics-tls.cert", "other files of the metrics port"),
        ("[metrics-tls]\ncert = \"c.pem\"", "metrics-tls.key", "other files of the metrics port"),
        ("[metrics-tls]\nclient-certs = \"require\"", "metrics-tls.cert", "by TLS alone"),
        ("[metrics-tls]\nclient-certs = \"require\"", "metrics-tls.trusted-ca", "judges the certificates"),
        ("[metrics-tls]\nclient-certs = \"always\"", "metrics-tls.client-certs", "always"),
        ("[dns]\ndomain = \"a b\"", "dns.domain", "domain name"),
        ("[dns]\nttl = \"1500ms\"", "dns.ttl", "whole seconds"),
        ("[dns]\nttl = \"25h\"", "dns.ttl", "at most 24h"),
        ("[dns]\nudp-answers = 0", "dns.udp-answers", "between 1 and"),
        ("[dns]\nudp-answers = 41", "dns.udp-answers", "between 1 and"),
        ("[log]\nlevel = \"a=b=c\"", "log.level", "neither"),
        ("[cluster]\ninitial = []", "cluster.initial", "does not name this node"),
    ];
    for (file, key, text) in cases {
        let found = problems(from_file(file));
        assert!(found.iter().any(|(k, detail)| k == key && detail.contains(text)), "{file:?}: {found:?}");
    }
}

#[test]
fn endpoints_of_remote_datacenters_are_hosts_with_ports() {
    for text in ["a:1", "A.example.com:65535", "a_b-c:80", "10.0.0.1:2379", "[::1]:2379", "[2001:db8::1]:1", "a.:1"] {
        let config = from_file(&format!("[consul]\nremote-datacenters = \"dc2={text}\""));
        assert_eq!(config.unwrap().consul.remote_datacenters["dc2"], [text]);
    }
    for text in [
        "a",
        ":1",
        "a:",
        "a:0",
        "a:65536",
        "a:-1",
        "a:+1",
        "a:1/x",
        "a b:1",
        "a/b:1",
        "a@b:1",
        "::1:2379",
        "[::1:2379",
        "[a]:1",
        "[::1]x:1",
        "[::1]",
        "300.0.0.1:1",
        "1.2.3:1",
        "a..b:1",
        "-a:1",
        "ä:1",
        "http://a:1",
        "https://https://a:1",
        "a?b:1",
        "a#b:1",
        "a%41:1",
        " a:1",
    ] {
        let found = problems(from_file(&format!("[consul]\nremote-datacenters = \"dc2={text}\"")));
        let is_reported = |(key, detail): &(String, String)| {
            // A plus separates endpoints.
            key == "consul.remote-datacenters" && detail.contains("is not HOST:PORT")
        };
        assert!(found.iter().any(is_reported), "{text:?}: {found:?}");
    }
    // All problems are reported at once, also those of other settings.
    let file = "[consul]\nremote-datacenters = \"dc2=a+b:1+c:x,dc1=d:1,dc3,dc4=e:0\"\n[dns]\nudp-answers = 0";
    let found = problems(from_file(file));
    let wanted = ["\"a\" is not", "\"c:x\" is not", "\"dc1\" is no name", "\"dc3\" has no =", "\"e:0\" is not"];
    for part in wanted {
        assert!(found.iter().any(|(_, detail)| detail.contains(part)), "{part}: {found:?}");
    }
    assert_eq!(found.len(), wanted.len() + 1, "{found:?}");
    let many: Vec<String> = (0..=REMOTE_ENDPOINTS_MAX).map(|number| format!("h{number}:1")).collect();
    let of =
        |endpoints: &[String]| from_file(&format!("[consul]\nremote-datacenters = \"dc2={}\"", endpoints.join("+")));
    assert!(of(&many[1..]).is_ok());
    assert!(problems(of(&many))[0].1.contains("endpoints, at most"));
}

#[test]
fn the_watch_section_is_read_up_to_its_limits() {
    let config = from_file(
        "[raft]\nelection-max = \"500ms\"\n[watch]\nwindow-size = \"4MiB\"\nwindow-commits = 16\n\
         catch-up-size = \"4KiB\"\ncatch-up-commits = 16\nprogress-interval = \"100ms\"\n\
         leader-loss-timeout = \"1s\"\n",
    );
    let wanted = WatchConfig {
        window_bytes: 4 << 20,
        window_commits: 16,
        catch_up_bytes: 4 << 10,
        catch_up_commits: 16,
        progress_interval: Duration::from_millis(100),
        leader_loss_timeout: Duration::from_secs(1),
    };
    assert_eq!(config.unwrap().watch, wanted);
}

#[test]
fn rules_of_the_member_list() {
    // (replaced text of the good list, its replacement, key, part of the error)
    let cases = [
        ("id = 2\n", "id = 4\n", "cluster.initial", "does not name this node"),
        ("id = 2\n", "\n", "node.id", "must be set"),
        ("id = 3,", "id = 1,", "cluster.initial", "id 1 twice"),
        ("\"c\"", "\"a\"", "cluster.initial", "name a twice"),
        ("10.0.0.3:2380", "10.0.0.1:2380", "cluster.initial", "twice"),
        ("id = 2\n", "id = 2\nname = \"z\"\n", "node.name", "cluster.initial says b"),
        ("id = 3,", "", "cluster.initial[0].id", "is missing"),
        ("id = 3,", "id = -3,", "cluster.initial[0].id", "above zero"),
        ("id = 3,", "id = 3, nmae = 1,", "cluster.initial[0].nmae", "did you mean name?"),
        ("http://10.0.0.3:2380", "10.0.0.3:2380", "cluster.initial[0].peer", "http://"),
        ("http://10.0.0.3:2380", "https://10.0.0.3:2380", "peer-tls.cert", "must be set"),
        ("http://10.0.0.3:2380", "http://10.0.0.3", "cluster.initial[0].peer", "port"),
        ("http://10.0.0.3:2380", "http://10.0.0.3:2380/x", "cluster.initial[0].peer", "path"),
    ];
    for (from, to, key, text) in cases {
        assert!(THREE.contains(from), "{from:?} is not in the list");
        let found = problems(from_file(&THREE.replacen(from, to, 1)));
        assert!(found.iter().any(|(k, detail)| k == key && detail.contains(text)), "{to:?}: {found:?}");
    }
    let found = problems(from_file(&format!("advertise-peer = \"http://10.9.9.9:1\"\n{THREE}")));
    assert!(found[0].1.contains("cluster.initial says http://10.0.0.2:2380"), "{found:?}");
}

#[test]
fn sizes_and_durations() {
    for (text, wanted) in [
        ("0B", Some(0)),
        ("1B", Some(1)),
        ("64MiB", Some(64 << 20)),
        ("10 MB", Some(10_000_000)),
        ("64", None),
        ("", None),
        ("MiB", None),
        ("-1B", None),
        ("1.5GiB", None),
        ("64mib", None),
        ("99999999999TiB", None),
    ] {
        assert_eq!(value::size(text).ok(), wanted, "{text:?}");
    }
    for (text, wanted) in [("100ms", Some(100)), ("2s", Some(2000)), ("1m 1s", Some(61_000)), ("100", None), ("", None)]
    {
        assert_eq!(value::duration(text).ok(), wanted.map(Duration::from_millis), "{text:?}");
    }
}

#[test]
fn names_of_a_setting() {
    let setting = Setting::find("raft.election-min").unwrap();
    assert_eq!(setting.variable(), "HEADWATER_RAFT_ELECTION_MIN");
    assert_eq!(setting.flag(), "--raft-election-min");
}

#[test]
fn errors_name_file_and_origin() {
    let error = Config::load(&Sources { file: Some("/nowhere/x.toml".into()), ..Sources::default() }).unwrap_err();
    assert!(error.to_string().starts_with("cannot read the configuration file /nowhere/x.toml: "), "{error}");
    let error = from_file("a = \n").unwrap_err();
    assert!(error.to_string().contains("is not valid TOML"), "{error}");
    let sources =
        Sources { environment: vec![("HEADWATER_RAFT_HEARTBEAT".into(), "fast".into())], ..Sources::default() };
    let error = Config::load(&sources).unwrap_err().to_string();
    assert!(error.contains("raft.heartbeat (from HEADWATER_RAFT_HEARTBEAT): \"fast\" is not a duration"), "{error}");
}

#[test]
fn the_files_of_the_local_cluster_are_valid() {
    for id in 1..=3 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(format!("cluster/node{id}.toml"));
        let config = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
        assert_eq!(config.node.id, NodeId(id));
        assert_eq!(config.cluster.initial.len(), 3);
    }
}

#[test]
fn bounds_in_bytes_are_named_beside_those_in_entries() {
    for (key, bytes) in [("raft.snapshot-every", SNAPSHOT_EVERY_BYTES), ("raft.log-keep", LOG_KEEP_BYTES)] {
        let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap();
        assert!(setting.help.contains(&format!("{} MiB of commands", bytes >> 20)), "{key}: {}", setting.help);
    }
}

/// The configuration that these flags make, or the text of the problems.
fn of_flags(flags: &[(&'static str, &str)]) -> Result<Config, String> {
    let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    Config::load(&Sources { flags, ..Sources::default() }).map_err(|error| error.to_string())
}

#[test]
fn limits_that_etcd_has_are_set_as_with_etcd() {
    let defaults = of_flags(&[]).unwrap();
    assert_eq!((defaults.limits.max_request_bytes, defaults.limits.max_txn_ops), (1_572_864, 128));
    assert!(defaults.strict_reconfig_check);
    for (text, bytes) in [("1572864", 1_572_864), ("2MiB", 2 << 20), ("65536", 65_536), ("10MiB", 10 << 20)] {
        assert_eq!(of_flags(&[("max-request-bytes", text)]).unwrap().limits.max_request_bytes, bytes, "{text}");
    }
    for text in ["0", "65535", "10485761", "-1", "many", "1 MB more"] {
        let problem = of_flags(&[("max-request-bytes", text)]).unwrap_err();
        assert!(problem.contains("max-request-bytes"), "{text}: {problem}");
    }
    let narrow = of_flags(&[("max-request-bytes", "4MiB"), ("watch.window-size", "7MiB")]).unwrap_err();
    assert!(narrow.contains("half of watch.window-size"), "{narrow}");
    for (text, is_good) in [("1", true), ("16384", true), ("0", false), ("16385", false), ("\"128\"", false)] {
        assert_eq!(of_flags(&[("max-txn-ops", text)]).is_ok(), is_good, "{text}");
    }
    let both = of_flags(&[("max-request-bytes", "1"), ("max-txn-ops", "0")]).unwrap_err();
    assert!(both.contains("max-request-bytes") && both.contains("max-txn-ops"), "all at once: {both}");
    assert!(!of_flags(&[("strict-reconfig-check", "false")]).unwrap().strict_reconfig_check);
    assert!(defaults.invited_only);
    assert!(!of_flags(&[("cluster.invited-only", "false")]).unwrap().invited_only);
}

#[test]
fn a_unix_socket_is_a_path_from_the_root() {
    let path = "/run/headwater.sock";
    for text in ["unix:///run/headwater.sock", "unix:/run/headwater.sock", path] {
        let config = of_flags(&[("listen-client-unix", text)]).unwrap();
        assert_eq!(config.listen_client_unix.as_deref(), Some(Path::new(path)), "{text}");
    }
    assert_eq!(of_flags(&[("listen-client-unix", "off")]).unwrap().listen_client_unix, None);
    let long = format!("unix:///{}", "x".repeat(107));
    for text in ["unixs:///run/s", "unix://s", "s", "unix:///", "", long.as_str()] {
        let problem = of_flags(&[("listen-client-unix", text)]).unwrap_err();
        assert!(problem.contains("listen-client-unix"), "{text}: {problem}");
    }
}

#[test]
fn a_metrics_port_beyond_loopback_needs_tls_or_the_word_that_it_is_insecure() {
    assert_eq!(of_flags(&[]).unwrap().metrics, MetricsConfig { listen: None, on_client_port: true });
    let files = [("metrics-tls.cert", "c.pem"), ("metrics-tls.key", "k.pem")];
    for (listen, others, is_good) in [
        ("127.0.0.1:2381", &[][..], true),
        ("[::1]:2381", &[], true),
        ("127.0.0.1:0", &[], true),
        ("0.0.0.0:2381", &[], false),
        ("10.0.0.1:2381", &[("tls.cert", "c.pem"), ("tls.key", "k.pem")], false),
        ("10.0.0.1:2381", &[("insecure", "true")], true),
        ("10.0.0.1:2381", &files, true),
        ("off", &files, true),
    ] {
        let flags: Vec<_> = [("metrics.listen", listen)].into_iter().chain(others.iter().copied()).collect();
        let loaded = of_flags(&flags);
        assert_eq!(loaded.is_ok(), is_good, "{flags:?}: {loaded:?}");
    }
    let taken = of_flags(&[("metrics.listen", "127.0.0.1:2381"), ("metrics.on-client-port", "false")]).unwrap();
    let wanted = MetricsConfig { listen: Some("127.0.0.1:2381".parse().unwrap()), on_client_port: false };
    assert_eq!(taken.metrics, wanted);
}

#[test]
fn the_page_lists_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let page = std::fs::read_to_string(path).unwrap();
    for setting in SETTINGS {
        let row = format!("| `{}` | {} | {} |", setting.key, setting.default, setting.help);
        assert!(page.contains(&row), "docs/settings.md lacks the row\n{row}");
    }
}
