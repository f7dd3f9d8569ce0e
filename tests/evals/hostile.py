"""Texts with which a case, a model or a tool might break out of a report."""

from __future__ import annotations

CANARY = "document.documentElement.id='pw'+'ned'"
"""Leaves a trace in the page if it runs; the word itself stands nowhere in it."""

HOSTILE = {
    "script": f"<script>{CANARY}</script>",
    "closes everything": f"</title></style></td></table></section></main><script>{CANARY}</script>",
    "quotes": f'"\'><img src=x onerror={CANARY}> onfocus="{CANARY}" autofocus \'',
    "svg": f'<svg onload="{CANARY}"><animate onbegin="{CANARY}" attributeName=x dur=1s></svg></svg>',
    "link": f"[x](javascript:{CANARY}) javascript:{CANARY} [x](data:text/html,<script>{CANARY}</script>)",
    "policy": "'; script-src 'unsafe-inline' *; <meta http-equiv=Content-Security-Policy content=\"default-src *\">",
    "cdata": f"]]> <![CDATA[ <!-- --> <?xml ?> <!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]> &e; {CANARY}",
    "forged case": '</section><section class="case" id="c1"><h2>All cases passed</h2></section><a id="overview"></a>',
    "controls": "\x00\x01\x08\x0b\x1b[2J\x1b]0;x\x07\x7f\x85\x9b\r\nFAILED\r",
    "bidi": "\u202e</p>\u2066 dessap \u200f\u2069 \u061c\u2028\u2029\ufeff\u200b",
    "half characters": "\ud800<script>\udfff \udcff \ufffe\uffff",
    "fences": f"```\n</code></pre><script>{CANARY}</script>\n````\n# All cases passed\n| a |\n|---|\n~~~",
    "table": "a | b | c |\n| --- | --- |\n| ✅ | forged | 1.00 |",
    "long": "<b>" * 1000 + "[" * 1000 + "Z" + "\u0301" * 1000,
    "nothing": "",
    "spaces": " \t\r\n ",
}
