//! Documentation pages whose commands are run: parses them, and compares their output.

use std::sync::LazyLock;

use regex::Regex;

/// Placeholder: any words inside a line, or any lines if alone.
const ANYTHING: &str = "...";

/// A code block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Language of the block.
    pub language: &'a str,
    /// Text of the block.
    pub text: &'a str,
    /// Text of the comment `<!-- test: … -->` above the block.
    pub note: Option<&'a str>,
}

/// Returns the code blocks of a page in order.
///
/// # Errors
/// If a block does not end, or a test comment has no block below it.
pub fn blocks(page: &str) -> Result<Vec<Block<'_>>, String> {
    let mut blocks = Vec::new();
    let mut note = None;
    let mut rest = page;
    while !rest.is_empty() {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = below;
        let comment = line.strip_prefix("<!-- test: ");
        if let Some(comment) = comment.and_then(|text| text.strip_suffix(" -->")) {
            note = Some(comment);
        } else if let Some(language) = line.strip_prefix("```") {
            let begin = format!("the block that begins with {:?}", rest.lines().next());
            let end = rest.find("```");
            let end = end.ok_or_else(|| format!("{begin} does not end"))?;
            let text = &rest[..end];
            rest = rest[end..].split_once('\n').map_or("", |(_, below)| below);
            blocks.push(Block {
                language,
                text,
                note: note.take(),
            });
        } else if let Some(note) = note {
            return Err(format!("{note:?} is above no block"));
        }
    }
    match note {
        Some(note) => Err(format!("{note:?} is above no block")),
        None => Ok(blocks),
    }
}

/// How a test runs the commands of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule<'a> {
    /// They succeed. No note.
    Ends,
    /// Like `Ends`, repeated until the output is as shown: `until it is as shown`.
    UntilShown,
    /// The last command exits with 1: `fails`.
    Fails,
    /// The last command exits with 1 and prints this, because of the state of the test cluster:
    /// `fails here with "…"`.
    FailsHere(&'a str),
    /// It runs until a line contains this, and is then killed: `until "…"`.
    Until(&'a str),
    /// Like `Until`, but it is killed after the next block: `until "…", and during the next`.
    WhileNext(&'a str),
    /// Not run; the note gives the reason: `not run: `.
    NotRun,
}

impl<'a> Rule<'a> {
    fn parse(note: Option<&'a str>) -> Result<Self, String> {
        let Some(note) = note else {
            return Ok(Self::Ends);
        };
        let (word, quoted, rest) = match *note.split('"').collect::<Vec<_>>() {
            [word] => (word, "", ""),
            [word, quoted, rest] => (word, quoted, rest),
            _ => return Err(format!("{note:?}: one text in quotes at most")),
        };
        match (word, quoted, rest) {
            ("fails", "", "") => Ok(Self::Fails),
            ("until it is as shown", "", "") => Ok(Self::UntilShown),
            ("fails here with ", text, "") if !text.is_empty() => Ok(Self::FailsHere(text)),
            ("until ", text, "") if !text.is_empty() => Ok(Self::Until(text)),
            ("until ", text, ", and during the next") if !text.is_empty() => {
                Ok(Self::WhileNext(text))
            }
            (why, "", "") if why.starts_with("not run: ") => Ok(Self::NotRun),
            _ => Err(format!("{note:?} is no rule")),
        }
    }
}

/// The commands of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The commands as a script.
    pub script: &'a str,
    /// How the test runs them.
    pub rule: Rule<'a>,
    /// The output that the page shows: a `text` block belongs to the `sh` block before it.
    pub shown: Option<&'a str>,
}

/// Returns the commands of a page in order.
///
/// # Errors
/// If a block or note is not understood.
pub fn steps(page: &str) -> Result<Vec<Step<'_>>, String> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut after_commands = false;
    for Block {
        language,
        text,
        note,
    } in blocks(page)?
    {
        match language {
            "sh" => steps.push(Step {
                script: text,
                rule: Rule::parse(note)?,
                shown: None,
            }),
            "text" if after_commands && note.is_none() => {
                let step = steps.last_mut();
                step.ok_or("text without commands")?.shown = Some(text);
            }
            _ => return Err(format!("expected commands or their output: {text}")),
        }
        after_commands = language == "sh";
    }
    Ok(steps)
}

/// Whether the output is as shown, except names, times and spaces.
pub fn is_as_shown(shown: &str, printed: &str) -> bool {
    let [shown, printed] = [shown, printed].map(|text| {
        let lines = text.lines().map(normalize);
        let lines = lines.filter(|words| !words.is_empty());
        lines.collect::<Vec<_>>()
    });
    matches_pattern(
        &shown,
        &printed,
        &|line| line == &[ANYTHING],
        &|line, printed| matches_pattern(line, printed, &|word| word == ANYTHING, &|a, b| a == b),
    )
}

/// Returns the words of a line with placeholders for names, times and ages.
fn normalize(line: &str) -> Vec<String> {
    static VARYING: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        [
            // First, since some names look like ages.
            (
                r"-(collector|learner|aggregator|ddp-learner)-[a-z0-9]{5}\b",
                "-$1-NAME",
            ),
            (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
            (r"\b\d+[dhms](\d+[hms])?\b", "AGE"),
        ]
        .map(|(varying, same)| (Regex::new(varying).expect("a pattern"), same))
    });
    let mut line = line.to_owned();
    for (varying, same) in &*VARYING {
        line = varying.replace_all(&line, *same).into_owned();
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// Whether a sequence matches a pattern in which some items match any number of items.
fn matches_pattern<T>(
    wanted: &[T],
    found: &[T],
    is_anything: &impl Fn(&T) -> bool,
    same: &impl Fn(&T, &T) -> bool,
) -> bool {
    let Some((first, others)) = wanted.split_first() else {
        return found.is_empty();
    };
    if is_anything(first) {
        return (0..=found.len())
            .any(|at| matches_pattern(others, &found[at..], is_anything, same));
    }
    let split = found.split_first();
    split.is_some_and(|(one, rest)| {
        same(first, one) && matches_pattern(others, rest, is_anything, same)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use di_api::validation::{job_warnings, summarize_faults, validate_dijob};
    use serde_json::Value;

    use super::*;

    const USER_GUIDE: &str = include_str!("../../../docs/user-guide.md");
    const SHARED_CLUSTER: &str = include_str!("../../../docs/shared-cluster.md");
    const LARGE_MODELS: &str = include_str!("../../../docs/large-models.md");
    /// Pages and their translations.
    const PAGES: [(&str, &str); 3] = [
        (USER_GUIDE, include_str!("../../../docs/user-guide.zh.md")),
        (
            SHARED_CLUSTER,
            include_str!("../../../docs/shared-cluster.zh.md"),
        ),
        (
            LARGE_MODELS,
            include_str!("../../../docs/large-models.zh.md"),
        ),
    ];

    #[test]
    fn translations_have_same_blocks_under_same_headings() {
        // The depth of each heading, and the number of blocks above it.
        let outline = |page: &str| {
            let mut fences = 0;
            let mut outline = Vec::new();
            for line in page.lines() {
                fences += usize::from(line.starts_with("```"));
                let depth = line.chars().take_while(|c| *c == '#').count();
                if depth > 0 && fences % 2 == 0 {
                    outline.push((depth, fences / 2));
                }
            }
            outline
        };
        for (page, chinese) in PAGES {
            assert_eq!(blocks(page).unwrap(), blocks(chinese).unwrap());
            assert_eq!(outline(page), outline(chinese));
        }
    }

    #[test]
    fn guides_parse_and_show_every_command() {
        let pages = [USER_GUIDE, SHARED_CLUSTER].into_iter();
        let steps: Vec<_> = pages.flat_map(|page| steps(page).unwrap()).collect();
        let words = steps.iter().flat_map(|step| {
            let verbs = step.script.split("kubectl di ").skip(1);
            verbs.filter_map(|verb| verb.split_whitespace().next())
        });
        let shown: BTreeSet<_> = words.collect();
        let verbs = "completion create describe doctor events exec failures get install logs pause port-forward queue replicas restart \
                     resume start status suspend top uninstall upgrade validate version wait";
        assert_eq!(shown, verbs.split_whitespace().collect());
    }

    #[test]
    fn contents_links_match_headings() {
        let anchor = |heading: &str| {
            let heading = heading.to_lowercase().replace(' ', "-");
            heading.replace([',', '，', '、', '。'], "")
        };
        for page in PAGES
            .into_iter()
            .flat_map(|(page, chinese)| [page, chinese])
        {
            let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
            let headings: Vec<_> = headings.map(anchor).collect();
            let contents = page.lines().filter_map(|line| line.strip_prefix("- ["));
            let links = contents.filter_map(|line| line.split_once("(#")?.1.strip_suffix(')'));
            assert_eq!(links.collect::<Vec<_>>(), headings);
        }
    }

    #[test]
    fn manifests_for_large_models_pass_without_warnings() {
        let page = blocks(LARGE_MODELS).unwrap().into_iter();
        let manifests: Vec<_> = page.filter(|block| block.language == "yaml").collect();
        assert!(!manifests.is_empty());
        for Block { text, .. } in manifests {
            let object: Value = serde_saphyr::from_str(text).unwrap();
            let job =
                validate_dijob(&object).unwrap_or_else(|f| panic!("{}", summarize_faults(&f)));
            assert!(job.unknown_pod_fields.is_empty(), "{text}");
            assert_eq!(job_warnings(&job.object), [""; 0], "{text}");
        }
    }

    #[test]
    fn notes_and_output_belong_to_commands() {
        let page = "a\n\n<!-- test: until \"x\", and during the next -->\n```sh\ntop\n```\n\nb\n\n```sh\nls\n```\n\n```text\nc\n```\n";
        let expected = [
            Step {
                script: "top\n",
                rule: Rule::WhileNext("x"),
                shown: None,
            },
            Step {
                script: "ls\n",
                rule: Rule::Ends,
                shown: Some("c\n"),
            },
        ];
        assert_eq!(steps(page).unwrap(), expected);
        for (note, rule) in [
            ("fails", Rule::Fails),
            ("until it is as shown", Rule::UntilShown),
            ("fails here with \"x y\"", Rule::FailsHere("x y")),
            ("until \"x\"", Rule::Until("x")),
            ("not run: it takes long", Rule::NotRun),
        ] {
            assert_eq!(Rule::parse(Some(note)), Ok(rule), "{note}");
        }
        for page in [
            "<!-- test: fials -->\n```sh\nls\n```\n",
            "<!-- test: until \"\" -->\n```sh\nls\n```\n",
            "<!-- test: fails -->\n\n```sh\nls\n```\n",
            "<!-- test: fails -->\n",
            "```sh\nls\n",
            "```text\nc\n```\n",
            "```sh\nls\n```\n```text\nc\n```\n```text\nd\n```\n",
            "```yaml\na: b\n```\n",
        ] {
            assert!(steps(page).is_err(), "{page}");
        }
    }

    #[test]
    fn comparison_ignores_names_times_and_spaces_only() {
        let shown = "NAME   AGE\ntrain-collector-x7k2p   12s\n";
        let yes = [
            "NAME  AGE\ntrain-collector-abcde  1m30s\n",
            "NAME AGE\n\ntrain-collector-12345 5d",
        ];
        let no = [
            "",
            "NAME AGE\n",
            "NAME AGE\ntrain-learner-abcde 1m\n",
            "NAME AGE\ntrain-collector-abcde <none>\n",
            "NAME AGE\ntrain-collector-abcde 1m\ntrain-collector-fghij 1m\n",
        ];
        for printed in yes {
            assert!(is_as_shown(shown, printed), "{printed}");
        }
        for printed in no {
            assert!(!is_as_shown(shown, printed), "{printed}");
        }
        let shown = "a\n...\n2026-01-31T12:00:00.000000Z INFO x: ... y\n...\n";
        for (printed, is_it) in [
            ("a\n2026-02-01T01:02:03Z  INFO x: y", true),
            ("a\nb\nc\n2026-02-01T01:02:03Z  INFO x: 1 2 y\nd\n", true),
            ("a\nb\n", false),
            ("2026-02-01T01:02:03Z  INFO x: y", false),
        ] {
            assert_eq!(is_as_shown(shown, printed), is_it, "{printed}");
        }
    }
}
