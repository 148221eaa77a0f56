"""The operations of the lakeFS API, all of them: what is not there yet answers so, and is told from a mistyped URL."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import falcon

from esker.auth import Need
from esker.server.call import Call, NoQuery, Operation


class Known(NamedTuple):
    group: str
    method: str
    path: str
    id: str


def not_there(call: Call[NoQuery, None]) -> None:
    """Answers 501: not there yet."""
    raise falcon.HTTPNotImplemented(description="esker does not have this operation of the lakeFS API yet")


def absent(known: Known) -> Operation:
    """The operation as one that says that it is not there."""
    return Operation(
        id=known.id,
        group=known.group,
        method=known.method,
        path=known.path,
        need=Need.READ if known.method == "GET" else Need.WRITE,
        handler=not_there,
        status=501,
        implemented=False,
    )


def _known(text: str) -> Iterator[Known]:
    """Groups end in a colon; a line of an operation has its method, path and id."""
    group = ""
    for line in text.strip().splitlines():
        if line.endswith(":"):
            group = line.strip(" :")
        else:
            yield Known(group, *line.split())


LAKEFS: Final = tuple(
    _known("""
    config:
    GET /config getConfig
    healthCheck:
    GET /healthcheck healthCheck
    repositories:
    GET /repositories listRepositories
    POST /repositories createRepository
    GET /repositories/{repository} getRepository
    DELETE /repositories/{repository} deleteRepository
    GET /repositories/{repository}/metadata getRepositoryMetadata
    GET /repositories/{repository}/settings/gc_rules getGCRules
    PUT /repositories/{repository}/settings/gc_rules setGCRules
    DELETE /repositories/{repository}/settings/gc_rules deleteGCRules
    GET /repositories/{repository}/settings/branch_protection getBranchProtectionRules
    PUT /repositories/{repository}/settings/branch_protection setBranchProtectionRules
    POST /repositories/{repository}/dump dumpSubmit
    GET /repositories/{repository}/dump dumpStatus
    POST /repositories/{repository}/restore restoreSubmit
    GET /repositories/{repository}/restore restoreStatus
    branches:
    GET /repositories/{repository}/branches listBranches
    POST /repositories/{repository}/branches createBranch
    GET /repositories/{repository}/branches/{branch} getBranch
    DELETE /repositories/{repository}/branches/{branch} deleteBranch
    PUT /repositories/{repository}/branches/{branch} resetBranch
    POST /repositories/{repository}/branches/{branch}/revert revertBranch
    POST /repositories/{repository}/branches/{branch}/cherry-pick cherryPick
    GET /repositories/{repository}/branches/{branch}/diff diffBranch
    commits:
    POST /repositories/{repository}/branches/{branch}/commits commit
    GET /repositories/{repository}/commits/{commitId} getCommit
    refs:
    GET /repositories/{repository}/refs/{ref}/commits logCommits
    POST /repositories/{repository}/refs/{sourceRef}/merge/{destinationBranch} mergeIntoBranch
    GET /repositories/{repository}/refs/{sourceRef}/merge/{destinationBranch} findMergeBase
    GET /repositories/{repository}/refs/{leftRef}/diff/{rightRef} diffRefs
    tags:
    GET /repositories/{repository}/tags listTags
    POST /repositories/{repository}/tags createTag
    GET /repositories/{repository}/tags/{tag} getTag
    DELETE /repositories/{repository}/tags/{tag} deleteTag
    objects:
    GET /repositories/{repository}/refs/{ref}/objects getObject
    HEAD /repositories/{repository}/refs/{ref}/objects headObject
    POST /repositories/{repository}/branches/{branch}/objects uploadObject
    DELETE /repositories/{repository}/branches/{branch}/objects deleteObject
    POST /repositories/{repository}/branches/{branch}/objects/delete deleteObjects
    POST /repositories/{repository}/branches/{branch}/objects/copy copyObject
    GET /repositories/{repository}/refs/{ref}/objects/stat statObject
    PUT /repositories/{repository}/branches/{branch}/objects/stat/user_metadata updateObjectUserMetadata
    GET /repositories/{repository}/refs/{ref}/objects/underlyingProperties getUnderlyingProperties
    GET /repositories/{repository}/refs/{ref}/objects/ls listObjects
    staging:
    GET /repositories/{repository}/branches/{branch}/staging/backing getPhysicalAddress
    PUT /repositories/{repository}/branches/{branch}/staging/backing linkPhysicalAddress
    import:
    GET /repositories/{repository}/branches/{branch}/import importStatus
    POST /repositories/{repository}/branches/{branch}/import importStart
    DELETE /repositories/{repository}/branches/{branch}/import importCancel
    actions:
    GET /repositories/{repository}/actions/runs listRepositoryRuns
    GET /repositories/{repository}/actions/runs/{run_id} getRun
    GET /repositories/{repository}/actions/runs/{run_id}/hooks listRunHooks
    GET /repositories/{repository}/actions/runs/{run_id}/hooks/{hook_run_id}/output getRunHookOutput
    metadata:
    GET /repositories/{repository}/metadata/meta_range/{meta_range} getMetaRange
    GET /repositories/{repository}/metadata/range/{range} getRange
    pulls:
    GET /repositories/{repository}/pulls listPullRequests
    POST /repositories/{repository}/pulls createPullRequest
    GET /repositories/{repository}/pulls/{pull_request} getPullRequest
    PATCH /repositories/{repository}/pulls/{pull_request} updatePullRequest
    PUT /repositories/{repository}/pulls/{pull_request}/merge mergePullRequest
    experimental:
    POST /sts/login stsLogin
    PUT /repositories/{repository}/branches/{branch}/hard_reset hardResetBranch
    POST /repositories/{repository}/branches/{branch}/staging/pmpu createPresignMultipartUpload
    PUT /repositories/{repository}/branches/{branch}/staging/pmpu/{uploadId} completePresignMultipartUpload
    DELETE /repositories/{repository}/branches/{branch}/staging/pmpu/{uploadId} abortPresignMultipartUpload
    PUT /repositories/{repository}/branches/{branch}/staging/pmpu/{uploadId}/parts/{partNumber} uploadPart
    PUT /repositories/{repository}/branches/{branch}/staging/pmpu/{uploadId}/parts/{partNumber}/copy uploadPartCopy
    auth:
    GET /user getCurrentUser
    POST /auth/login login
    POST /auth/external/principal/login externalPrincipalLogin
    GET /auth/users listUsers
    POST /auth/users createUser
    GET /auth/users/{userId} getUser
    DELETE /auth/users/{userId} deleteUser
    GET /auth/groups listGroups
    POST /auth/groups createGroup
    GET /auth/groups/{groupId} getGroup
    DELETE /auth/groups/{groupId} deleteGroup
    GET /auth/policies listPolicies
    POST /auth/policies createPolicy
    GET /auth/policies/{policyId} getPolicy
    PUT /auth/policies/{policyId} updatePolicy
    DELETE /auth/policies/{policyId} deletePolicy
    GET /auth/groups/{groupId}/members listGroupMembers
    PUT /auth/groups/{groupId}/members/{userId} addGroupMembership
    DELETE /auth/groups/{groupId}/members/{userId} deleteGroupMembership
    GET /auth/users/{userId}/credentials listUserCredentials
    POST /auth/users/{userId}/credentials createCredentials
    DELETE /auth/users/{userId}/credentials/{accessKeyId} deleteCredentials
    GET /auth/users/{userId}/credentials/{accessKeyId} getCredentials
    GET /auth/users/{userId}/groups listUserGroups
    GET /auth/users/{userId}/policies listUserPolicies
    PUT /auth/users/{userId}/policies/{policyId} attachPolicyToUser
    DELETE /auth/users/{userId}/policies/{policyId} detachPolicyFromUser
    POST /auth/users/{userId}/external/principals createUserExternalPrincipal
    DELETE /auth/users/{userId}/external/principals deleteUserExternalPrincipal
    GET /auth/users/{userId}/external/principals/ls listUserExternalPrincipals
    GET /auth/external/principals getExternalPrincipal
    GET /auth/groups/{groupId}/policies listGroupPolicies
    PUT /auth/groups/{groupId}/policies/{policyId} attachPolicyToGroup
    DELETE /auth/groups/{groupId}/policies/{policyId} detachPolicyFromGroup
    POST /auth/groups/{groupId}/acl setGroupACL
    GET /auth/groups/{groupId}/acl getGroupACL
    GET /oidc/callback oauthCallback
    internal:
    POST /setup_comm_prefs setupCommPrefs
    GET /setup_lakefs getSetupState
    POST /setup_lakefs setup
    GET /auth/capabilities getAuthCapabilities
    POST /repositories/{repository}/metadata setRepositoryMetadata
    DELETE /repositories/{repository}/metadata deleteRepositoryMetadata
    PUT /repositories/{repository}/refs/dump dumpRefs
    PUT /repositories/{repository}/refs/restore restoreRefs
    POST /repositories/{repository}/commits CreateCommitRecord
    GET /repositories/{repository}/branches/{branch}/objects/stage_allowed uploadObjectPreflight
    PUT /repositories/{repository}/branches/{branch}/objects stageObject
    POST /repositories/{repository}/refs/{branch}/symlink createSymlinkFile
    GET /repositories/{repository}/metadata/object/{type}/{object_id} getMetadataObject
    GET /repositories/{repository}/gc/rules/set_allowed setGarbageCollectionRulesPreflight
    GET /repositories/{repository}/gc/rules internalGetGarbageCollectionRules
    POST /repositories/{repository}/gc/rules internalSetGarbageCollectionRules
    DELETE /repositories/{repository}/gc/rules internalDeleteGarbageCollectionRules
    POST /repositories/{repository}/gc/prepare_commits prepareGarbageCollectionCommits
    POST /repositories/{repository}/gc/prepare_commits/async prepareGarbageCollectionCommitsAsync
    GET /repositories/{repository}/gc/prepare_commits/status prepareGarbageCollectionCommitsStatus
    POST /repositories/{repository}/gc/prepare_uncommited prepareGarbageCollectionUncommitted
    GET /repositories/{repository}/branch_protection/set_allowed createBranchProtectionRulePreflight
    GET /repositories/{repository}/branch_protection internalGetBranchProtectionRules
    POST /repositories/{repository}/branch_protection internalCreateBranchProtectionRule
    DELETE /repositories/{repository}/branch_protection internalDeleteBranchProtectionRule
    GET /config/version getLakeFSVersion
    GET /config/storage getStorageConfig
    GET /config/garbage-collection getGarbageCollectionConfig
    POST /statistics postStatsEvents
    GET /usage-report/summary getUsageReportSummary
    """)
)
