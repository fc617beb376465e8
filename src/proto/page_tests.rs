//! The page `docs/store-reference.md`, made from the protos of the store: their services, messages
//! and enumerations, with their comments.
//!
//! Invariant: the page equals the text that is made here, and every part of the protos has a
//! comment. Only a request or an answer of a method needs none. After a change of the protos, this
//! writes the page:
//!
//! ```sh
//! HEADWATER_WRITE_PAGES=1 cargo test --locked -p headwater-proto page
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};
use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor,
};

/// If this variable is set, the test writes the page instead of comparing it.
const WRITE: &str = "HEADWATER_WRITE_PAGES";
const PAGE: &str = "docs/store-reference.md";
/// The protos of the page, below `proto`, in the order of the page.
const PROTOS: &[&str] = &["headwater/store.proto", "headwater/commit.proto", "headwater/members.proto"];

const HEAD: &str = "\
<!-- Made from the comments of the protos by src/proto/page_tests.rs: change the protos, not this page. -->

# The store, field by field

Every method, message and field of `headwater.v1.Store` and `headwater.v1.Members`, over gRPC and as [JSON](http.md), on
the client port of every node:

```sh
curl -s http://127.0.0.1:2379/v1/store/read -d '{\"targets\": [\"/kv/app\"]}'
```

The guides are [One history](store.md) and [Commits over all faces](commits.md). `examples/store.py` and
`examples/store-go` are programs that read, commit and follow. At most one field of a `oneof` is set. A field that is not set
has the value 0, false or empty, unless its meaning says otherwise.
";

/// The text of the page so far, with the names that it refers to.
#[derive(Default)]
struct Page {
    text: String,
    /// Names of the protos on the page. Their types are linked to headings, others to their files.
    protos: Vec<String>,
    /// Sentences about the methods that use a message, by the full name of the message.
    uses: BTreeMap<String, Vec<String>>,
    /// Full names of the parts of the protos that have no comment.
    missing: Vec<String>,
}

impl Page {
    fn of(pool: &DescriptorPool, protos: &[&str], head: &str) -> Self {
        let protos = protos.iter().map(|&name| name.to_owned()).collect();
        let mut page = Self { text: head.to_owned(), protos, ..Self::default() };
        let files: Vec<FileDescriptor> =
            page.protos.iter().map(|name| pool.get_file_by_name(name).expect("it was compiled")).collect();
        for method in files.iter().flat_map(FileDescriptor::services).flat_map(|it| it.methods().collect::<Vec<_>>()) {
            page.note_uses(&method);
        }
        files.iter().for_each(|file| page.file(file));
        page
    }

    fn note_uses(&mut self, method: &MethodDescriptor) {
        let name = method.name();
        let answer = match method.is_server_streaming() {
            true => format!("One message of the stream that `{name}` answers."),
            false => format!("The answer of `{name}`."),
        };
        let request = format!("The request of `{name}`.");
        for (message, usage) in [(method.input(), request), (method.output(), answer)] {
            self.uses.entry(message.full_name().to_owned()).or_default().push(usage);
        }
    }

    /// Writes a heading, and below it the services, then the messages and enumerations in the order
    /// of the file.
    fn file(&mut self, file: &FileDescriptor) {
        let name = file.name();
        // The comment of the file stands before `syntax`, field 12 of a file's descriptor.
        let comment = self.comment(file, &[12], name);
        self.text += &format!("\n## {name}\n\n{comment}\n");
        file.services().for_each(|service| self.service(&service));
        let messages = file.messages().map(|message| (line(file, message.path()), Kind::Message(message)));
        let enumerations = file.enums().map(|one| (line(file, one.path()), Kind::Enum(one)));
        let mut types: Vec<_> = messages.chain(enumerations).collect();
        types.sort_by_key(|(line, _)| *line);
        for (_, kind) in types {
            match kind {
                Kind::Message(message) => self.message(&message),
                Kind::Enum(enumeration) => self.enumeration(&enumeration),
                scalar => unreachable!("{scalar:?} is not declared in a file"),
            }
        }
    }

    fn service(&mut self, service: &ServiceDescriptor) {
        let file = service.parent_file();
        let comment = self.comment(&file, service.path(), service.full_name());
        self.text += &format!("\n### {}\n\n`{}`. {comment}\n", service.name(), service.full_name());
        self.text += "\n| method | request | answer | over HTTP | meaning |\n|---|---|---|---|---|\n";
        for method in service.methods() {
            let [request, answer] = [method.input(), method.output()].map(|message| self.link_message(&message));
            let stream = |is_stream| if is_stream { "stream of " } else { "" };
            let [asks, answers] = [method.is_client_streaming(), method.is_server_streaming()].map(stream);
            let http = post(&method).map(|path| format!("`POST {path}`")).unwrap_or_default();
            let meaning = self.cell(&file, method.path(), method.full_name());
            self.text +=
                &format!("| `{}` | {asks}{request} | {answers}{answer} | {http} | {meaning} |\n", method.name());
        }
    }

    fn message(&mut self, message: &MessageDescriptor) {
        let file = message.parent_file();
        let comment = match self.uses.get(message.full_name()) {
            Some(uses) => format!("{} {}", uses.join(" "), comment(&file, message.path())).trim().to_owned(),
            None => self.comment(&file, message.path(), message.full_name()),
        };
        self.text += &format!("\n### {}\n\n{comment}\n", heading(message.full_name(), message.package_name()));
        if message.fields().len() == 0 {
            self.text += "\nIt has no fields.\n";
        } else {
            self.text += "\n| field | type | meaning |\n|---|---|---|\n";
        }
        for field in message.fields() {
            let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
            let oneof = oneof.map(|oneof| format!(", oneof `{}`", oneof.name())).unwrap_or_default();
            let meaning = self.cell(&file, field.path(), field.full_name());
            self.text += &format!("| `{}` | {}{oneof} | {meaning} |\n", field.name(), self.type_of(&field));
        }
        message.child_enums().for_each(|enumeration| self.enumeration(&enumeration));
        message.child_messages().filter(|child| !child.is_map_entry()).for_each(|child| self.message(&child));
    }

    fn enumeration(&mut self, enumeration: &EnumDescriptor) {
        let file = enumeration.parent_file();
        let comment = self.comment(&file, enumeration.path(), enumeration.full_name());
        self.text += &format!("\n### {}\n\n{comment}\n", heading(enumeration.full_name(), enumeration.package_name()));
        self.text += "\n| value | number | meaning |\n|---|---|---|\n";
        for value in enumeration.values() {
            let meaning = self.cell(&file, value.path(), value.full_name());
            self.text += &format!("| `{}` | {} | {meaning} |\n", value.name(), value.number());
        }
    }

    /// The comment of the part of `file` at `path`. If it has none, adds `name` to `missing`.
    fn comment(&mut self, file: &FileDescriptor, path: &[i32], name: &str) -> String {
        let comment = comment(file, path);
        if comment.is_empty() {
            self.missing.push(name.to_owned());
        }
        comment
    }

    /// As [`Self::comment`], on one line, for a cell of a table.
    fn cell(&mut self, file: &FileDescriptor, path: &[i32], name: &str) -> String {
        let comment = self.comment(file, path, name);
        comment.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
    }

    fn type_of(&self, field: &FieldDescriptor) -> String {
        match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()];
                format!("map of {} to {}", self.kind(&key.kind()), self.kind(&value.kind()))
            }
            kind if field.is_list() => format!("repeated {}", self.kind(&kind)),
            kind if field.field_descriptor_proto().proto3_optional() => format!("optional {}", self.kind(&kind)),
            kind => self.kind(&kind),
        }
    }

    fn kind(&self, kind: &Kind) -> String {
        match kind {
            Kind::Message(message) => self.link_message(message),
            Kind::Enum(one) => self.link(one.full_name(), one.package_name(), one.parent_file().name()),
            scalar => format!("{scalar:?}"),
        }
    }

    fn link_message(&self, message: &MessageDescriptor) -> String {
        self.link(message.full_name(), message.package_name(), message.parent_file().name())
    }

    /// The name of a type as a link: to its heading if it is on the page, else to its file. The
    /// types of protobuf itself get no link.
    fn link(&self, full_name: &str, package: &str, file: &str) -> String {
        let name = heading(full_name, package);
        if self.protos.iter().any(|proto| proto == file) {
            return format!("[{name}](#{})", name.to_lowercase().replace('.', ""));
        }
        match package {
            "google.protobuf" => full_name.to_owned(),
            _ => format!("[{full_name}](../proto/{file})"),
        }
    }
}

/// The name of a type without its package.
fn heading<'a>(full_name: &'a str, package: &str) -> &'a str {
    full_name.strip_prefix(package).map_or(full_name, |name| name.trim_start_matches('.'))
}

/// The comment before the part of `file` at `path`, with links to the pages that it names; empty if
/// there is none.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location = info.and_then(|info| info.location.iter().find(|location| location.path == path));
    let text = location.map_or("", |location| location.leading_comments());
    let lines = text.lines().map(|line| line.split(' ').map(link_page).collect::<Vec<_>>().join(" ").trim().to_owned());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A word such as `docs/watcher.md` as a link to the page; any other word as it is.
fn link_page(word: &str) -> String {
    let path = word.trim_end_matches(['.', ',', ';', ':']);
    let page = path.strip_prefix("docs/").filter(|page| page.ends_with(".md"));
    page.map_or(word.to_owned(), |page| format!("[{page}]({page}){}", &word[path.len()..]))
}

/// The line at which the part of `file` at `path` begins.
fn line(file: &FileDescriptor, path: &[i32]) -> i32 {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location = info.and_then(|info| info.location.iter().find(|location| location.path == path));
    location.and_then(|location| location.span.first().copied()).unwrap_or_default()
}

/// The path for `POST` of a method over HTTP; `None` if the method is not offered over HTTP.
fn post(method: &MethodDescriptor) -> Option<String> {
    let http = method.parent_pool().get_extension_by_name("google.api.http")?;
    let options = method.options();
    let rule = options.get_extension(&http);
    let post = rule.as_message()?.get_field_by_name("post")?.as_str()?.to_owned();
    Some(post).filter(|path| !path.is_empty())
}

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles `protos`. Files are looked up in `first`, then in the project's folder `proto`, then
/// among the protos of Google that come with the compiler.
fn compile(first: Option<Shelf>, protos: &[&str]) -> DescriptorPool {
    let mut resolver = ChainFileResolver::new();
    first.into_iter().for_each(|first| resolver.add(first));
    resolver.add(IncludeFileResolver::new(root().join("proto")));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_source_info(true).open_files(protos).unwrap();
    compiler.descriptor_pool()
}

#[test]
fn the_page_of_the_store_is_that_of_the_protos() {
    let pool = compile(None, PROTOS);
    let page = Page::of(&pool, PROTOS, HEAD);
    assert!(page.missing.is_empty(), "these have no comment: {}", page.missing.join(", "));
    let path = root().join(PAGE);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page.text).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let equal = found.lines().zip(page.text.lines()).take_while(|(found, made)| found == made).count();
    assert!(
        found == page.text,
        "{PAGE} differs from the protos from line {} on; {WRITE}=1 cargo test --locked -p headwater-proto page writes it",
        equal + 1
    );
}

/// A proto with parts of every kind, some of them without a comment.
struct Shelf;

impl FileResolver for Shelf {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "shelf.proto" => File::from_source(name, SHELF),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

const SHELF: &str = r#"// A shelf, as docs/store.md has it.
syntax = "proto3";
package shelf.v1;
import "etcd/kv.proto";
import "google/api/annotations.proto";
import "google/protobuf/any.proto";
// Any member answers.
service Shelf {
  // Takes a book.
  rpc Take(TakeRequest) returns (stream Book) {
    option (google.api.http) = { post: "/v1/take" body: "*" };
  }
  rpc Put(Book) returns (Nothing);
}
message TakeRequest {
  // One book, or
  // all of "a|b".
  repeated Book books = 1;
  oneof by {
    // Its title.
    string title = 2;
    Book.Kind kind = 3;
  }
  // Where it stands.
  optional uint32 place = 4;
  // Of readers.
  map<string, Colour> marks = 5;
}
// The colour of a mark.
enum Colour {
  // Not known.
  NONE = 0;
}
// Paper.
//
// Or more.
message Book {
  enum Kind { UNKNOWN = 0; }
  // The key.
  mvccpb.KeyValue key = 1;
  // More.
  google.protobuf.Any more = 2;
}
message Nothing {}
message Lost {}
"#;

#[test]
fn parts_of_every_kind_are_on_the_page() {
    let pool = compile(Some(Shelf), &["shelf.proto"]);
    let page = Page::of(&pool, &["shelf.proto"], "# Shelf\n");
    let wanted = r#"# Shelf

## shelf.proto

A shelf, as [store.md](store.md) has it.

### Shelf

`shelf.v1.Shelf`. Any member answers.

| method | request | answer | over HTTP | meaning |
|---|---|---|---|---|
| `Take` | [TakeRequest](#takerequest) | stream of [Book](#book) | `POST /v1/take` | Takes a book. |
| `Put` | [Book](#book) | [Nothing](#nothing) |  |  |

### TakeRequest

The request of `Take`.

| field | type | meaning |
|---|---|---|
| `books` | repeated [Book](#book) | One book, or all of "a\|b". |
| `title` | string, oneof `by` | Its title. |
| `kind` | [Book.Kind](#bookkind), oneof `by` |  |
| `place` | optional uint32 | Where it stands. |
| `marks` | map of string to [Colour](#colour) | Of readers. |

### Colour

The colour of a mark.

| value | number | meaning |
|---|---|---|
| `NONE` | 0 | Not known. |

### Book

One message of the stream that `Take` answers. The request of `Put`. Paper.

Or more.

| field | type | meaning |
|---|---|---|
| `key` | [mvccpb.KeyValue](../proto/etcd/kv.proto) | The key. |
| `more` | google.protobuf.Any | More. |

### Book.Kind



| value | number | meaning |
|---|---|---|
| `UNKNOWN` | 0 |  |

### Nothing

The answer of `Put`.

It has no fields.

### Lost



It has no fields.
"#;
    assert_eq!(page.text, wanted);
    let missing = [
        "shelf.v1.Shelf.Put",
        "shelf.v1.TakeRequest.kind",
        "shelf.v1.Book.Kind",
        "shelf.v1.Book.UNKNOWN",
        "shelf.v1.Lost",
    ];
    assert_eq!(page.missing, missing);
}
