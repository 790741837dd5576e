"""Questions that are answered by making a model, perhaps several times, and running it: is it right, where does an
error begin, which decision is at fault, how fast is it beside others?"""
