"""Web pages as text."""

import pytest

from shepherd.tools.builtin.page import as_text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("no tags &amp; so on", "no tags & so on"),
        ("<p>one\n  <b>two</b>  three</p><p>four</p>", "one two three\n\nfour"),
        ("<title> A title </title><h2>Head</h2>x<br>y", "A title\n\n## Head\n\nx\ny"),
        ("<head><title>T</title><meta x></head><body>x</body>", "T\n\nx"),
        ("<ul><li>1<li>2</ul>", "- 1\n- 2"),
        ("<a href='/x?a=1&amp;b=2'>link</a> <a name=y>none</a>", "[link](http://h.example/x?a=1&b=2) none"),
        ("<a href='http://[bad'>x</a>", "[x](http://[bad)"),
        ("<img alt='a cat' src=c.png><img src=d.png>", "[image: a cat]"),
        ("<pre>  a\n    b</pre>", "a\n    b"),
        ("a<br><br>b", "a\nb"),
        ("<table><tr><th>a<td>b</tr><tr><td>c</td></tr></table>", "| a| b\n| c"),
        ("a<script>if (x < y) { alert('<p>') }</script>b<style>p{}</style>c<!-- d --><svg><text>e</text></svg>", "abc"),
        ("<noscript><p>x</noscript>y</p>z", "y\n\nz"),
        ("</p></a></td></pre></title>x", "x"),
        ("<svg>never closed <p>x", ""),
        ("a\x00b<p title='>'>c", "a\x00b\n\nc"),
    ],
)
def test_what_a_reader_sees_is_left(html: str, text: str) -> None:
    assert as_text({"html": html, "url": "http://h.example/dir/page"}) == text
