//! The language of filters, by examples.

use serde_json::{Value, json};

use super::shape::{CHECK_SERVICE_NODE, NODE, SERVICE};
use super::*;
use headwater_types::limits::CONSUL_FILTER_DEPTH_MAX;

fn read(text: &str, shape: Shape) -> Result<Expression, String> {
    read_all([text].into_iter(), shape)?.ok_or_else(|| "it is empty".to_owned())
}

fn instance() -> Value {
    json!({
        "Node": {"Node": "n1", "Address": "10.0.0.1", "Meta": {"rack": "r1", "a.b": "dotted"}, "TaggedAddresses": null},
        "Service": {
            "ID": "web-1", "Service": "web", "Tags": ["v1", "primary"], "Port": 8080, "Meta": {"version": "2.1"},
            "EnableTagOverride": true, "Weights": {"Passing": 1, "Warning": 1},
            "TaggedAddresses": {"lan": {"Address": "10.0.0.9", "Port": 99}},
            "Proxy": {"Config": {"protocol": "http", "limit": 5}, "Upstreams": [{"DestinationName": "db"}]},
        },
        "Checks": [
            {"CheckID": "serfHealth", "Status": "passing", "ServiceTags": []},
            {"CheckID": "service:web", "Status": "warning", "ServiceTags": ["v1"]},
        ],
    })
}

#[test]
fn expressions_mean_what_go_bexpr_means() {
    for (text, wanted) in [
        ("Service.Service == web", true),
        ("Service.Service == \"web\"", true),
        ("Service.Service==`web`", true),
        ("Service.Service != web", false),
        ("Service.Port == 8080", true),
        ("Service.Port != 8081", true),
        ("Service.Port == \"8080\"", true),
        ("Service.EnableTagOverride == true", true),
        ("Service.EnableTagOverride != true", false),
        ("primary in Service.Tags", true),
        ("\"v2\" in Service.Tags", false),
        ("v2 not in Service.Tags", true),
        ("Service.Tags contains v1", true),
        ("Service.Tags not contains v1", false),
        ("Service.Tags is empty", false),
        ("Service.Tags is not empty", true),
        ("Node.TaggedAddresses is empty", true),
        ("Node.Meta.rack == r1", true),
        ("Node.Meta[\"a.b\"] == dotted", true),
        ("rack in Node.Meta", true),
        ("row in Node.Meta", false),
        ("Node.Meta.row == r1", false),
        ("Node.Meta.row != r1", true),
        ("Node.Meta.row is empty", true),
        ("Node.Meta.row is not empty", false),
        ("x not in Node.Meta.row", true),
        ("Node.Address matches `^10\\.`", true),
        ("Node.Address not matches `^10\\.`", false),
        ("Node.Address matches \"^11\"", false),
        ("\"0.0\" in Node.Address", true),
        ("Service.TaggedAddresses.lan.Port == 99", true),
        ("Service.TaggedAddresses.wan.Port == 99", false),
        ("Service.SocketPath == \"\"", true),
        ("Service.Proxy.Config.protocol == http", true),
        ("Service.Proxy.Config.limit == 5", true),
        ("Service.Proxy.Upstreams.DestinationName == db", true),
        ("Service.Proxy.Upstreams.0.DestinationName == db", true),
        ("Service.Proxy.Upstreams.1.DestinationName == db", false),
        ("Checks.Status == warning", true),
        ("Checks.Status == critical", false),
        ("Checks.Status != passing", true),
        ("not Checks.Status == critical", true),
        ("v1 in Checks.ServiceTags", true),
        ("\"/Service/Service\" == web", true),
        ("Service.Service == web and Service.Port == 1", false),
        ("Service.Service == web or Service.Port == 1 and Service.Port == 2", true),
        ("(Service.Service == web or Service.Port == 1) and Service.Port == 2", false),
        ("not Service.Service == api and not (Service.Port == 1)", true),
        ("not not Service.Service == web", true),
        (" ( ( Service.Service == web ) ) ", true),
        ("Service.Service == \"\\x77eb\"", true),
        ("Service.ID == web-1 or Service.Service == web", false),
    ] {
        match read(text, CHECK_SERVICE_NODE) {
            Ok(expression) => assert_eq!(expression.is_true_of(&instance()), wanted, "{text}"),
            // The one row with a bare value that is neither a name nor a number.
            Err(error) => assert!(text.contains("web-1"), "{text}: {error}"),
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (text, wanted) in [
        ("Service.Nothing == 1", "Selector \"Service.Nothing\" is not valid"),
        ("Nothing == 1", "not valid"),
        ("Service.Service.x == 1", "not valid"),
        ("Service.Port == web", "\"web\" is not"),
        ("Service.EnableTagOverride == 2", "\"2\" is not"),
        ("Service.Tags == v1", "use in or contains"),
        ("Service == v1", "use in or contains"),
        ("1 in Service.Port", "contains nothing"),
        ("Service.Port is empty", "never empty"),
        ("Service.Port matches 1", "regular expression is not for"),
        ("Node.Address matches `(`", "no regular expression"),
        ("Service.Service", "operator is wanted"),
        ("Service.Service ==", "ends where"),
        ("Service.Service = web", "begins nothing"),
        ("(Service.Service == web", "Unmatched parentheses"),
        ("Service.Service == web)", "could end"),
        ("Service.Service == web and", "ends where"),
        ("Service.Service == \"web", "does not end"),
        ("Service.Service == `web", "does not end"),
        ("Service.Service == \"\\q\"", "no escape"),
        ("Service.Port == 01", "no number"),
        ("Service.Port == 1x", "no number"),
        ("Node.Meta[rack] == 1", "Invalid index"),
        ("Node.Meta[\"rack\" == 1", "Unclosed index"),
        ("Service.Tags is full", "after \"is\""),
        ("\"x\" in \"y\"", "selects nothing"),
        ("== 1", "where a name or a value is wanted"),
    ] {
        let error = read(text, CHECK_SERVICE_NODE).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn expressions_are_bounded() {
    let nested = |depth| format!("{}Node == a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(read(&nested(CONSUL_FILTER_DEPTH_MAX), NODE).is_ok());
    assert!(read(&nested(CONSUL_FILTER_DEPTH_MAX + 1), NODE).unwrap_err().contains("inside each other"));
    let joined = |count| vec!["Node == a"; count + 1].join(" or ");
    assert!(read(&joined(CONSUL_FILTER_DEPTH_MAX * 4), NODE).is_ok());
    assert!(read(&joined(CONSUL_FILTER_DEPTH_MAX * 4 + 1), NODE).unwrap_err().contains("joined"));
    let long = |bytes: usize| format!("ID == \"{}\"", "x".repeat(bytes - 8));
    assert!(read(&long(CONSUL_FILTER_BYTES_MAX), SERVICE).is_ok());
    assert!(read(&long(CONSUL_FILTER_BYTES_MAX + 1), SERVICE).unwrap_err().contains("bytes"));
    assert!(read("Node matches `(a{1000}){1000}`", NODE).is_err());
    let patterns = |count| vec!["Node matches a"; count];
    assert!(read(&patterns(CONSUL_FILTER_PATTERNS_MAX).join(" or "), NODE).is_ok());
    assert!(read(&patterns(CONSUL_FILTER_PATTERNS_MAX + 1).join(" or "), NODE).unwrap_err().contains("expressions"));
    // All expressions of a request count together.
    let several = |texts: Vec<&str>| read_all(texts.into_iter(), NODE).map(|found| found.is_some());
    assert_eq!(several(patterns(CONSUL_FILTER_PATTERNS_MAX)), Ok(true));
    assert!(several(patterns(CONSUL_FILTER_PATTERNS_MAX + 1)).unwrap_err().contains("expressions"));
    assert!(several(vec!["Node == a"; 1000]).unwrap_err().contains("bytes"));
    assert_eq!(several(vec!["", " "]), Ok(false));
}

proptest::proptest! {
    #[test]
    fn nothing_that_is_written_breaks_it(text in "[a-zN.\\[\\]()\"`=! 0-9-]{0,60}") {
        if let Ok(expression) = read(&text, CHECK_SERVICE_NODE) {
            expression.is_true_of(&instance());
        }
    }
}
