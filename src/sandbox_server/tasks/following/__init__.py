"""Pull requests of tasks, followed until they are merged or closed: checks, reviews, comments, conflicts.

A webhook delivery only wakes the job of a pull request, which reads what there is. So a lost, late or repeated delivery makes no
difference: the job looks every ten minutes anyway.
"""
