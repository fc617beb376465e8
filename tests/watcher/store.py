"""Keys below a folder of a case, written and read through the key-value service."""

import grpc

from etcd import rpc_pb2 as pb
from etcd import rpc_pb2_grpc
from streams import TIMEOUT_S
from view import parent


class Store:
    def __init__(self, endpoint, folder):
        options = [("grpc.max_receive_message_length", -1)]
        self.stub = rpc_pb2_grpc.KVStub(grpc.insecure_channel(endpoint, options=options))
        self.folder = folder

    def key(self, key):
        return (self.folder + key).encode()

    def target(self, path):
        return f"/kv/{self.folder}{path}"

    def put_later(self, key, value):
        return self.stub.Put.future(pb.PutRequest(key=self.key(key), value=value.encode()), timeout=TIMEOUT_S)

    def put(self, key, value):
        self.put_later(key, value).result()

    def _delete(self, key, subtree):
        end = self.key(key + "0") if subtree else b""
        return pb.DeleteRangeRequest(key=self.key(key), range_end=end)

    def delete(self, key, subtree=False):
        """With `subtree`, whatever begins with the key and what sorts up to "/", too."""
        self.stub.DeleteRange(self._delete(key, subtree), timeout=TIMEOUT_S)

    def txn_later(self, puts, deletes=()):
        put = [pb.RequestOp(request_put=pb.PutRequest(key=self.key(key), value=value.encode())) for key, value in puts]
        delete = [pb.RequestOp(request_delete_range=self._delete(key, False)) for key in deletes]
        return self.stub.Txn.future(pb.TxnRequest(success=put + delete), timeout=TIMEOUT_S)

    def txn(self, puts, deletes=()):
        self.txn_later(puts, deletes).result()

    def compact(self):
        revision = self.stub.Range(pb.RangeRequest(key=b"any"), timeout=TIMEOUT_S).header.revision
        self.stub.Compact(pb.CompactionRequest(revision=revision, physical=True), timeout=TIMEOUT_S)

    def fixture(self):
        for key, value in [("/app", "d0"), ("/app/a", "1"), ("/app/b", "2"), ("/app/d/x", "3"), ("/other/z", "9")]:
            self.put(key, value)

    def pairs(self, root=""):
        """Keys at and below a root, relative to it, as a linearizable read shows them, in the order in which they changed."""
        begin = self.key(root)
        order = {"sort_order": pb.RangeRequest.ASCEND, "sort_target": pb.RangeRequest.MOD}
        request = pb.RangeRequest(key=begin, range_end=begin + b"0", **order)
        for kv in self.stub.Range(request, timeout=TIMEOUT_S).kvs:
            below = kv.key.removeprefix(begin).decode()
            if not below or below.startswith("/"):
                yield below[1:], kv

    def tree(self, root, recursive):
        """What a client that follows the root has to know."""
        pairs = {name: kv.value.decode() for name, kv in self.pairs(root)}
        tree = dict(pairs)
        for name in pairs:
            while (name := parent(name)) is not None:
                tree.setdefault(name, "Empty")
        return {name: data for name, data in tree.items() if recursive or "/" not in name}
