//! NFS front door. Not built yet: this crate holds its place in the workspace.
