//! `etcdserverpb.Auth`: users, roles, turning authentication on and off, and tokens (spec: etcd
//! §4.3, security §3).
//!
//! Decodes requests, asks `node`, encodes answers. Passwords are moved out of the messages at once,
//! into memory that is overwritten when it is dropped.

use tonic::{Request, Response, Status};

use super::errors::{Failure, Invalid};
use super::header;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_node::{Node, NodeError, RequestContext, Secret, UserPassword};
use headwater_proto::pb::authpb;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::auth_server::Auth;
use headwater_types::auth::{AuthCommand, Permission, PermissionKind};
use headwater_types::{AuthRefusal, LogIndex, Refusal, Revision};

/// Serves `etcdserverpb.Auth`.
pub(crate) struct AuthService {
    node: Node,
    options: ApiOptions,
}

impl AuthService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }

    fn header(&self, revision: Revision) -> Option<pb::ResponseHeader> {
        Some(header::full(&self.node, revision))
    }

    fn open<T>(&self, request: Request<T>) -> Result<(RequestContext, T), Failure> {
        Ok(open(request, self.options.request_timeout)?)
    }

    /// Carries out a change. Returns its log index, and the header of the answer.
    async fn change(
        &self,
        ctx: &RequestContext,
        command: AuthCommand,
    ) -> Result<(LogIndex, Option<pb::ResponseHeader>), Failure> {
        let applied = self.node.auth().change(ctx, command).await?;
        Ok((applied.index, self.header(applied.revision)))
    }
}

/// The name of a user; refused if it is empty. Checked before the password is hashed, because a
/// hash is costly.
fn named(name: String) -> Result<String, Failure> {
    if name.is_empty() { Err(refused(AuthRefusal::UserEmpty)) } else { Ok(name) }
}

fn refused(refusal: AuthRefusal) -> Failure {
    NodeError::Refused(Refusal::Auth(refusal)).into()
}

fn password(plain: String, hashed: String, has_none: bool) -> UserPassword {
    match (has_none, hashed.is_empty()) {
        (true, _) => UserPassword::None,
        (false, false) => UserPassword::Hashed(Secret::new(hashed)),
        (false, true) => UserPassword::Plain(Secret::new(plain)),
    }
}

fn read_permission(permission: Option<authpb::Permission>) -> Result<Permission, Failure> {
    let permission = permission.ok_or(Invalid::PermissionNotGiven)?;
    let kind = match authpb::permission::Type::try_from(permission.perm_type) {
        Ok(authpb::permission::Type::Read) => PermissionKind::Read,
        Ok(authpb::permission::Type::Write) => PermissionKind::Write,
        Ok(authpb::permission::Type::Readwrite) => PermissionKind::ReadWrite,
        Err(_) => return Err(Invalid::PermissionKind.into()),
    };
    Ok(Permission { kind, key: permission.key, range_end: permission.range_end })
}

fn write_permission(permission: Permission) -> authpb::Permission {
    let kind = match permission.kind {
        PermissionKind::Read => authpb::permission::Type::Read,
        PermissionKind::Write => authpb::permission::Type::Write,
        PermissionKind::ReadWrite => authpb::permission::Type::Readwrite,
    };
    authpb::Permission { perm_type: kind.into(), key: permission.key, range_end: permission.range_end }
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let (ctx, pb::AuthEnableRequest {}) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::Enable).await?;
        Ok(reply(index, pb::AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let (ctx, pb::AuthDisableRequest {}) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::Disable).await?;
        Ok(reply(index, pb::AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let (ctx, pb::AuthStatusRequest {}) = self.open(request)?;
        let read = self.node.auth().status(&ctx).await.map_err(Failure::Node)?;
        let response = pb::AuthStatusResponse {
            header: self.header(read.revision),
            enabled: read.value.enabled,
            auth_revision: read.value.revision,
        };
        Ok(reply(read.index, response))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let (ctx, pb::AuthenticateRequest { name, password }) = self.open(request)?;
        let password = Secret::new(password);
        let issued = self.node.auth().authenticate(&ctx, &name, &password).await;
        let (index, revision, token) = issued.map_err(Failure::Node)?;
        let response = pb::AuthenticateResponse { header: self.header(revision), token: token.reveal().to_owned() };
        Ok(reply(index, response))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let (ctx, pb::AuthUserAddRequest { name, password: plain, options, hashed_password }) = self.open(request)?;
        let has_none = options.is_some_and(|options| options.no_password);
        let password = password(plain, hashed_password, has_none);
        let name = named(name)?;
        let password = self.node.auth().hash(&ctx, password).await.map_err(Failure::Node)?;
        let (index, header) = self.change(&ctx, AuthCommand::UserAdd { name, password }).await?;
        Ok(reply(index, pb::AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let (ctx, pb::AuthUserGetRequest { name }) = self.open(request)?;
        let read = self.node.auth().user(&ctx, &name).await.map_err(Failure::Node)?;
        Ok(reply(read.index, pb::AuthUserGetResponse { header: self.header(read.revision), roles: read.value }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let (ctx, pb::AuthUserListRequest {}) = self.open(request)?;
        let read = self.node.auth().users(&ctx).await.map_err(Failure::Node)?;
        Ok(reply(read.index, pb::AuthUserListResponse { header: self.header(read.revision), users: read.value }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let (ctx, pb::AuthUserDeleteRequest { name }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::UserDelete { name }).await?;
        Ok(reply(index, pb::AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let (ctx, pb::AuthUserChangePasswordRequest { name, password: plain, hashed_password }) = self.open(request)?;
        // As in etcd, the empty name is one that no user has.
        let password = password(plain, hashed_password, false);
        let password = self.node.auth().hash(&ctx, password).await.map_err(Failure::Node)?;
        let (index, header) = self.change(&ctx, AuthCommand::UserChangePassword { name, password }).await?;
        Ok(reply(index, pb::AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let (ctx, pb::AuthUserGrantRoleRequest { user, role }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::UserGrantRole { user, role }).await?;
        Ok(reply(index, pb::AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let (ctx, pb::AuthUserRevokeRoleRequest { name: user, role }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::UserRevokeRole { user, role }).await?;
        Ok(reply(index, pb::AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let (ctx, pb::AuthRoleAddRequest { name }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::RoleAdd { name }).await?;
        Ok(reply(index, pb::AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let (ctx, pb::AuthRoleGetRequest { role }) = self.open(request)?;
        let read = self.node.auth().role(&ctx, &role).await.map_err(Failure::Node)?;
        let perm = read.value.into_iter().map(write_permission).collect();
        Ok(reply(read.index, pb::AuthRoleGetResponse { header: self.header(read.revision), perm }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let (ctx, pb::AuthRoleListRequest {}) = self.open(request)?;
        let read = self.node.auth().roles(&ctx).await.map_err(Failure::Node)?;
        Ok(reply(read.index, pb::AuthRoleListResponse { header: self.header(read.revision), roles: read.value }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let (ctx, pb::AuthRoleDeleteRequest { role: name }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::RoleDelete { name }).await?;
        Ok(reply(index, pb::AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let (ctx, pb::AuthRoleGrantPermissionRequest { name: role, perm }) = self.open(request)?;
        let permission = read_permission(perm)?;
        let (index, header) = self.change(&ctx, AuthCommand::RoleGrantPermission { role, permission }).await?;
        Ok(reply(index, pb::AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let (ctx, pb::AuthRoleRevokePermissionRequest { role, key, range_end }) = self.open(request)?;
        let (index, header) = self.change(&ctx, AuthCommand::RoleRevokePermission { role, key, range_end }).await?;
        Ok(reply(index, pb::AuthRoleRevokePermissionResponse { header }))
    }
}
