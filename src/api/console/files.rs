//! The files of the console, packed with gzip by the build.

/// A file that is served.
pub(crate) struct PackedFile {
    /// Its path below `/ui/`.
    pub(crate) name: &'static str,
    /// The value of the header `Content-Type`.
    pub(crate) content_type: &'static str,
    /// Its content, packed with gzip.
    pub(crate) gzip: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal: $content_type:ident,)*) => {
        /// Every file of the folder `files`; a test compares.
        pub(crate) const FILES: &[PackedFile] = &[$(PackedFile {
            name: $name,
            content_type: $content_type,
            gzip: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz")),
        },)*];
    };
}

files! {
    "api.js": SCRIPT,
    "app.js": SCRIPT,
    "chart.js": SCRIPT,
    "cluster.js": SCRIPT,
    "dom.js": SCRIPT,
    "follow.js": SCRIPT,
    "history.js": SCRIPT,
    "icon.svg": IMAGE,
    "index.html": HTML,
    "keys.js": SCRIPT,
    "leases.js": SCRIPT,
    "list.js": SCRIPT,
    "moment.js": SCRIPT,
    "page.js": SCRIPT,
    "resources.js": SCRIPT,
    "services.js": SCRIPT,
    "store.js": SCRIPT,
    "style.css": STYLE,
    "undo.js": SCRIPT,
    "value.js": SCRIPT,
    "yaml.js": SCRIPT,
}
