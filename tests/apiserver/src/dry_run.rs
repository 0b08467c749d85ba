use kube::api::PostParams;

/// Parameters of a server-side dry run.
pub fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}
