"""The REST API as a program uses it: `Client` speaks it over a transport, to a server or to a lake in this process."""

from esker.client.client import Client, basic, bearer
from esker.client.http import HttpTransport
from esker.client.transport import Answer, Body, Transport
from esker.client.wsgi import WsgiTransport

__all__ = ["Answer", "Body", "Client", "HttpTransport", "Transport", "WsgiTransport", "basic", "bearer"]
