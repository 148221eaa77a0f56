"""Tags."""

from esker.auth import Need
from esker.engine import protection, refs
from esker.refs import tags
from esker.server import wire
from esker.server.api.repositories import ForceQuery
from esker.server.call import Call, NoQuery, Operation
from esker.server.paging import PrefixQuery, pagination


def list_tags(call: Call[PrefixQuery, None]) -> wire.RefList:
    """Tags in order of their names."""
    query = call.query
    page = tags.page(call.lake.kv, call.repo.uid, prefix=query.prefix, after=query.after, amount=query.size)
    return wire.RefList(
        pagination=pagination(page.items, page.next),
        results=[wire.Ref(id=name, commit_id=tag.commit) for name, tag in page.items],
    )


def create_tag(call: Call[NoQuery, wire.TagCreation]) -> wire.Ref:
    """Name the commit that a ref stands for, for good."""
    body = call.body
    repo = call.writable_repo(force=bool(body.force))
    return wire.Ref(id=body.id, commit_id=refs.tag(call.lake, repo, body.id, body.ref))


def get_tag(call: Call[NoQuery, None]) -> wire.Ref:
    """A tag, and its commit."""
    name = call.path["tag"]
    return wire.Ref(id=name, commit_id=tags.get(call.lake.kv, call.repo.uid, name).commit)


def delete_tag(call: Call[ForceQuery, None]) -> None:
    """Delete a tag. Its commit stays."""
    repo = call.writable_repo(force=call.query.force)
    protection.check_writable(repo)
    tags.delete(call.lake.kv, repo.uid, call.path["tag"])


_ALL = "/repositories/{repository}/tags"
_ONE = f"{_ALL}/{{tag}}"

OPERATIONS = [
    Operation(id="listTags", method="GET", path=_ALL, need=Need.READ, handler=list_tags),
    Operation(
        id="createTag",
        method="POST",
        path=_ALL,
        need=Need.WRITE,
        handler=create_tag,
        status=201,
        statuses=(409,),
    ),
    Operation(id="getTag", method="GET", path=_ONE, need=Need.READ, handler=get_tag),
    Operation(id="deleteTag", method="DELETE", path=_ONE, need=Need.WRITE, handler=delete_tag, status=204),
]
