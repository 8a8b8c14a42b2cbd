"""How budget and effort are split: what a request asks for, the response curves, and the best split under its limits."""
