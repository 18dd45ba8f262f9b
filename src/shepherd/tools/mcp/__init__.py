"""Servers of the Model Context Protocol: their tools, resources and prompts, for our model and our user.

    servers.py       all configured servers: their tools, prompts and resources                  imports no SDK
    connection.py    one of them: its start, its requests and their clocks, its end, once again  imports no SDK
    session.py       the SDK's client over a transport, with what the server may ask of us       imports the SDK
    login.py         the SDK's OAuth client: tokens for a server over HTTP                       imports the SDK
    login_store.py   the tokens, in private files
    redirect_page.py where a login in the browser ends
    process.py       a program as a transport: its pipes, and that nothing of it survives
    content.py       results and messages of the protocol as ours
    ../builtin/mcp.py   `list_resources`, `read_resource`, `call_mcp_tool`

The SDK takes most of a second to import; a program without servers never does.
"""
